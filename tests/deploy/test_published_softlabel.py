"""Votes and soft labels as published, between organisations: each party's votes reach the trusted coordinator exactly,
and the model that everyone gets has the noise that the paper prints, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
import pytest
from scipy import stats

from comity.privacy.loss import Pure, parse_loss
from comity.privacy.unit import Unit
from comity.report.result import load_result
from comity.site.site_file import SiteFile
from comity.site.status import list_runs
from comity.study.local import consortium
from comity.study.results.released import load_received
from comity.study.simulation.simulate import run_study
from tests.deploy.deployment import Deployment, deployed
from tests.deploy.methods import METHODS, NAMES, Method
from tests.support.noise import NoNoise
from tests.support.relays import needs_server

pytestmark = [needs_server, pytest.mark.deploy]

EPSILON = 5.0


def _published(method: str, keys: str = "") -> Method:
    owners = "".join(f"[parties.{name}]\n" for name in NAMES)
    return Method(
        f'[softlabel]\nvariant = "published"\nmethod = "{method}"\nauxiliary = "public.parquet"\n{keys}{owners}',
        parties=NAMES,
        unit=Unit.PARTY,
        public=True,
        delta=0.0,
    )


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with pytest.MonkeyPatch.context() as patched:
        for name in list(METHODS):
            patched.delitem(METHODS, name)
        for method in ("vote", "soft"):
            patched.setitem(METHODS, f"softlabel-{method}", _published(method))
            # A penalty with which the grid that the noise lives on is far finer than the model.
            patched.setitem(METHODS, f"exact-{method}", _published(method, "l2 = 0.1\n"))
        serve = ("-m", "comity", "site", "serve", "--site")
        with deployed(tmp_path_factory.mktemp("published"), serve) as made:
            yield made


@pytest.mark.parametrize("method", ["vote", "soft"])
def test_a_coordinator_that_draws_nothing_has_the_model_of_one_process(
    running: Deployment, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sites are processes; the coordinator is this one, so that its noise can be taken away."""
    name = f"exact-{method}"
    study = running.study(name, 100.0)
    running.approve(study, name)
    monkeypatch.setattr("comity.relay.deployment.ReleasedNoise", NoNoise)
    asker = running.home / "coordinator"
    words = ("study", "submit", running.folder(name) / "study.toml", "--keys", asker / "coordinator.key")
    assert (
        running.comity(*words, "--invitation", running.loopback.invitation, "--out", asker / "runs" / name, "--quiet")
        == 0
    )
    found = load_result(next((asker / "runs" / name).iterdir()))
    monkeypatch.setattr(consortium, "noise_source", lambda seed, owner: NoNoise())
    alone = run_study(running.simulated(name), run_id=found.run)
    np.testing.assert_array_equal(found.released["model"], alone.released["model"])
    assert np.linalg.norm(found.released["model"]) > 0.05


@pytest.mark.parametrize("method", ["vote", "soft"])
def test_a_deployed_run_releases_the_exact_model_with_the_printed_noise(
    running: Deployment, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"softlabel-{method}"
    study, folder = running.run(name, EPSILON)
    found = load_result(folder)
    assert found.study_hash == study.hash == running.simulated(name).hash
    assert found.guarantee.epsilon == EPSILON and found.guarantee.delta == 0
    assert "the coordinator is trusted" in study.plan().as_text()
    # The same study in one process, by a coordinator that draws nothing.
    monkeypatch.setattr(consortium, "noise_source", lambda seed, owner: NoNoise())
    exact = run_study(running.simulated(name), run_id=found.run).released["model"]
    printed = 2 / 1e-4 if method == "vote" else 2 / (len(NAMES) * 1e-4)
    radius = float(np.linalg.norm(found.released["model"] - exact)) * EPSILON / printed
    # A radius of Gamma(d): outside of this interval one run in a million.
    low, high = stats.gamma(prod(exact.shape)).ppf([5e-7, 1 - 5e-7])
    assert low < radius < high
    for party in NAMES:
        received, _ = load_received(running.results(party, study, found.run))
        assert set(received.releases) == {"model"} and not received.own
        np.testing.assert_array_equal(received.releases["model"], found.released["model"])
        ledger = SiteFile.load(running.site(party)).owner().ledger
        assert [run.state for run in list_runs(ledger) if run.is_of(study.hash)] == ["closed"]
        drawn = [entry for entry in ledger.entries() if entry.kind == "draw" and entry.dataset == name]
        assert [(entry.release, parse_loss(entry.loss)) for entry in drawn] == [("votes", Pure(5))]
