"""The published average between organisations: Paillier, comparisons and shares over a relay, where each owner's policy
allows a method that is not private as claimed, and refused in these words where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from comity.methods.averaging.published.method import PublishedAveraging
from comity.methods.averaging.published.shares import PublishedShares, combine_shares
from comity.privacy.loss import Pure
from comity.report.result import load_result
from comity.site.site_file import SiteFile
from comity.site.status import list_runs
from comity.study.local import consortium
from comity.study.simulation.simulate import run_study
from comity.study.study import Study
from tests.deploy.deployment import Deployment, deployed
from tests.deploy.methods import METHODS, NAMES, RECORDS, Method
from tests.support.noise import NoNoise
from tests.support.relays import needs_server
from tests.support.witnesses import witnesses_in

pytestmark = [needs_server, pytest.mark.deploy]

NAME = "averaging-published"
METHOD = Method(
    '[averaging]\nvariant = "published"\n' + "".join(f"[parties.{name}]\n" for name in NAMES[:3]),
    delta=0.0,
    colluders=0,
)
EPSILON = 5.0


@contextmanager
def running(home: Path, policy: str) -> Iterator[Deployment]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, NAME, METHOD)
        with (
            witnesses_in(home / "witness"),
            deployed(home, ("-m", "comity", "site", "serve", "--site"), policy) as made,
        ):
            yield made


@pytest.fixture(scope="module")
def allowing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with running(tmp_path_factory.mktemp("allowing"), "unproven = true") as made:
        yield made


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with running(tmp_path_factory.mktemp("refusing"), "") as made:
        yield made


def test_it_runs_over_the_relay_with_the_noise_and_at_the_loss_that_are_declared(
    allowing: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, folder = allowing.run(NAME, EPSILON)
    found, protocol = load_result(folder), study.protocol
    assert isinstance(protocol, PublishedAveraging) and (protocol.noise, protocol.l2) == ("literal", 1.0)
    assert "not private as claimed" in found.guarantee.claim
    monkeypatch.setattr(consortium, "noise_source", lambda seed, owner: NoNoise())
    exact = run_study(allowing.simulated(NAME), run_id=found.run)
    # The mean of the models, and noise whose coordinates have the printed scale as their mean length.
    lengths = np.abs(found.model.weights[0] - exact.model.weights[0]) * RECORDS * EPSILON / 2
    assert np.count_nonzero(lengths) > 0.9 * lengths.size
    assert abs(lengths.mean() - 1) < 5 / sqrt(lengths.size)
    # Anyone who has the published shares has the model.
    shares = PublishedShares.load(folder / "shares")
    assert len(shares.shares) == len(METHOD.parties) + 1
    np.testing.assert_array_equal(combine_shares(shares.shares).weights, found.model.weights)
    declared = study.agreement.declaration["noise"].loss
    for party in METHOD.parties:
        ledger = SiteFile.load(allowing.site(party)).owner().ledger
        assert [run.state for run in list_runs(ledger) if run.is_of(study.hash)] == ["closed"]
        (account,) = [one for one in ledger.summary() if one.dataset == NAME]
        assert isinstance(declared, Pure) and account.spent_epsilon == declared.epsilon


def test_an_owner_that_does_not_allow_it_refuses_it_and_nothing_is_spent(
    refusing: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    study = refusing.study(NAME, EPSILON)
    said = refused(refusing, study, capsys)
    for words in said.values():
        assert "not private as claimed" in words and "policy.unproven does not allow this" in words
    # Of the variants that a policy allows by default this is not one.
    for party in METHOD.parties:
        path = Path(refusing.site(party))
        text = path.read_text().replace('variants = ["default", "published"]', 'variants = ["default"]')
        path.write_text(text.replace("records_may_leave = true", "records_may_leave = true\nunproven = true"))
    for words in refused(refusing, study, capsys).values():
        assert "policy.variants allows default, but the study runs published" in words
    assert refusing.submit(NAME).returncode != 0
    for party in METHOD.parties:
        ledger = SiteFile.load(refusing.site(party)).owner().ledger
        assert [run for run in list_runs(ledger) if run.is_of(study.hash)] == []


def refused(deployment: Deployment, study: Study, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What each site's command says."""
    pack = deployment.folder(NAME) / "published.study"
    if not pack.exists():
        file = deployment.folder(NAME) / "study.toml"
        assert deployment.comity("study", "pack", file, *deployment._keys(), "--out", pack) == 0
    found = {}
    for party in METHOD.parties:
        at = ("--site", deployment.site(party))
        deployment.comity("site", "receive", pack, *at)
        capsys.readouterr()
        assert deployment.comity("site", "approve", study.hash[:12], "--dataset", NAME, "--yes", *at) != 0
        found[party] = " ".join(capsys.readouterr().err.split())
    return found
