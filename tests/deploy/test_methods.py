"""Every method between organisations: relay, coordinator and sites as processes with folders of their own, from the
study file that is simulated, with the same exact aggregates as in one process and as much noise as declared."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.artefacts.artefact import load_artefact
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Declaration
from comity.learn import LinearClassifier
from comity.report.result import load_result
from comity.site.site_file import SiteFile
from comity.site.status import list_runs
from comity.study.local import consortium
from comity.study.results.released import load_received
from comity.study.results.result import Result
from comity.study.simulation.simulate import run_study
from comity.study.study import Study
from tests.deploy.deployment import Deployment, deployed
from tests.deploy.methods import METHODS, RECORDS
from tests.study.test_released import equal
from tests.support.noise import NoNoise
from tests.support.relays import needs_server
from tests.support.witnesses import witnesses_in

pytestmark = [needs_server, pytest.mark.deploy]

EPSILON = 5.0


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    home = tmp_path_factory.mktemp("exact")
    with witnesses_in(home / "witness"), deployed(home, ("-m", "tests.deploy.noiseless")) as made:
        yield made


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    home = tmp_path_factory.mktemp("noisy")
    with witnesses_in(home / "witness"), deployed(home, ("-m", "comity", "site", "serve", "--site")) as made:
        yield made


def without_noise(deployment: Deployment, method: str, run: str, monkeypatch: pytest.MonkeyPatch) -> Result:
    """The same study under the same run id in one process, by sites that draw nothing."""
    monkeypatch.setattr(consortium, "noise_source", lambda seed, owner: NoNoise())
    return run_study(deployment.simulated(method), run_id=run)


def differing(one: dict[str, Any], other: dict[str, Any], method: str) -> list[str]:
    """Names whose values are not the same to the last bit, or of which chance decides the rounding, by more than it."""
    assert list(one) == list(other)
    tried = METHODS[method]

    def same(name: str) -> bool:
        if name in tried.rounded:
            return near(one[name], other[name], tried.rounding)
        return name in tried.chance or equal(one[name], other[name])

    return [name for name in one if not same(name)]


def near(one: Any, other: Any, most: float) -> bool:
    if isinstance(one, dict | list):
        values = zip(one.values(), other.values()) if isinstance(one, dict) else zip(one, other)
        return len(one) == len(other) and all(near(*pair, most) for pair in values)
    return isinstance(one, str) or np.allclose(one, other, rtol=0, atol=most)


@pytest.mark.parametrize("method", METHODS)
def test_exact_aggregates_are_those_of_one_process(
    exact: Deployment, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, folder = exact.run(method, EPSILON)
    found = load_result(folder)
    assert found.study_hash == study.hash == exact.simulated(method).hash
    # No figure that is read off exact records.
    assert not found.assessment.measured
    alone = without_noise(exact, method, found.run, monkeypatch)
    assert differing(alone.released, found.released, method) == []
    assert found.artefacts.keys() == alone.artefacts.keys()
    # What each owner has at home is what it has in the folder of the simulation.
    alone.save(exact.home / "alone" / method)
    for party in METHODS[method].parties:
        here, there = exact.results(party, study, found.run), exact.home / "alone" / method / "parties" / party
        assert files(here) - {"signed.json"} == files(there)
        (got, presented), (expected, same) = load_received(here), load_received(there)
        assert differing(dict(expected.releases), dict(got.releases), method) == []
        assert differing(dict(expected.own), dict(got.own), method) == []
        assert type(presented) is type(same)
        own = fetched(exact, found.run, party, "--site", exact.site(party))
        assert differing(dict(expected.releases), own.released, method) == [] and own.study_hash == study.hash
    again = fetched(exact, found.run, "coordinator", "--out", str(folder.parent))
    assert differing(found.released, again.released, method) == []


def fetched(deployment: Deployment, run: str, member: str, *words: str) -> Result:
    to = deployment.home / "fetched" / run / member
    assert deployment.comity("fetch", run, "--to", to, *words) == 0
    return load_result(to)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("method", METHODS)
def test_with_noise_a_deployed_run_is_as_far_from_it_as_declared(
    noisy: Deployment, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, folder = noisy.run(method, EPSILON)
    found = load_result(folder)
    alone = without_noise(noisy, method, found.run, monkeypatch)
    assert found.guarantee.epsilon <= EPSILON * 1.001 and found.guarantee.claim == study.plan().claim
    name = METHODS[method].summed
    if name:
        declared, consortium = study.protocol.accepted(study.consortium), study.consortium
        split_boxes = (first(found.released[name]) - first(alone.released[name])) / deviation(
            declared, name, consortium
        )
        # Noise in every number, of the declared variance: a chi-square within six of its own deviations.
        assert np.count_nonzero(split_boxes) > 0.9 * split_boxes.size
        assert abs(np.mean(split_boxes**2) - 1) < 6 * sqrt(2 / split_boxes.size)
    else:
        made = found.released["datasets"]
        assert differing(alone.released, found.released, method) and set(made) == set(METHODS[method].parties)
        assert all(0.5 * RECORDS < len(rows) < 2 * RECORDS for rows in made.values())
    for party in METHODS[method].parties:
        ledger = SiteFile.load(noisy.site(party)).owner().ledger
        assert [run.state for run in list_runs(ledger) if run.is_of(study.hash)] == ["closed"]


def first(value: Any) -> np.ndarray:
    """The sum that was opened first: later ones depend on its noise."""
    opened = value[0] if isinstance(value, list) else value
    return np.asarray(opened["sum"], float).ravel()


def deviation(declared: Declaration, name: str, consortium: Consortium) -> float:
    """Of one number of an opened sum, with the noise of all of its parts."""
    release = declared[name]
    scale = release.scale(consortium)
    contributors = len(consortium.among(release.source)) if release.source in consortium.roles else consortium.size
    return release.deviation(scale) * scale.grid * sqrt(contributors / release.parts(consortium))


def test_the_published_vertical_method_is_refused_by_a_site_and_nothing_is_spent(
    noisy: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    """It runs between simulated sites alone: every party would read exact sums of the others' columns."""
    noisy.study("vertical-dealer", EPSILON)
    file = noisy.folder("vertical-dealer") / "study.toml"
    text = file.read_text().replace('products = "dealer"\nrounds = 2', 'variant = "published"')
    file.write_text(text.replace("delta = 1e-06\n", "").replace('name = "vertical-dealer"', 'name = "published"'))
    study, pack = Study.load(file), noisy.folder("vertical-dealer") / "published.study"
    assert study.protocol.variant == "published"
    assert noisy.comity("study", "pack", file, *noisy._keys(), "--out", pack) == 0
    for party in METHODS["vertical-dealer"].parties:
        at = ("--site", noisy.site(party))
        assert noisy.comity("site", "receive", pack, *at) == 0
        capsys.readouterr()
        assert noisy.comity("site", "approve", study.hash[:12], "--dataset", "vertical-dealer", "--yes", *at) != 0
        assert "not private as claimed: each pair of parties opens the exact sums" in " ".join(
            capsys.readouterr().err.split()
        )
        ledger = SiteFile.load(noisy.site(party)).owner().ledger
        assert [run for run in list_runs(ledger) if run.is_of(study.hash)] == []


def test_published_trees_leave_each_owners_model_at_its_site(noisy: Deployment) -> None:
    """Algorithm 1, line 3, between organisations: a model at every site, in no file of the coordinator's or of another
    owner."""
    study, folder = noisy.run("synthetic-published", EPSILON + 1)
    run, parties = load_result(folder).run, METHODS["synthetic-published"].parties
    homes = {party: noisy.results(party, study, run) for party in parties}
    weights = {party: load_received(home)[0].own["model"].tobytes() for party, home in homes.items()}
    assert len(set(weights.values())) == len(parties)
    for party, home in homes.items():
        assert isinstance(load_artefact(home / "own" / "model"), LinearClassifier)
        others = [folder.parent, *(there for name, there in homes.items() if name != party)]
        for other in others:
            assert not [path for path in other.rglob("*") if path.is_file() and weights[party] in path.read_bytes()]


def test_the_published_trees_are_refused_by_a_site_where_records_are_replaced(
    noisy: Deployment, capsys: pytest.CaptureFixture[str]
) -> None:
    """There the paper's claim is false, and a site that allows no unproven method spends nothing."""
    noisy.study("synthetic-published", EPSILON)
    file = noisy.folder("synthetic-published") / "study.toml"
    text = file.read_text().replace('neighbours = "add-remove"', 'neighbours = "replace"')
    file.write_text(text.replace('name = "synthetic-published"', 'name = "replaced"'))
    study, pack = Study.load(file), noisy.folder("synthetic-published") / "replaced.study"
    assert noisy.comity("study", "pack", file, *noisy._keys(), "--out", pack) == 0
    for party in METHODS["synthetic-published"].parties:
        at = ("--site", noisy.site(party))
        assert noisy.comity("site", "receive", pack, *at) == 0
        capsys.readouterr()
        assert noisy.comity("site", "approve", study.hash[:12], "--dataset", "synthetic-published", "--yes", *at) != 0
        assert "not private as claimed: the paper claims eps 5.00" in " ".join(capsys.readouterr().err.split())
        ledger = SiteFile.load(noisy.site(party)).owner().ledger
        assert [run for run in list_runs(ledger) if run.is_of(study.hash)] == []
