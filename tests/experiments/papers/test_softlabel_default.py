"""The default method's reproductions on small stand-ins; their figures on the real data are long tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.errors import DataError
from comity.federation.declare.protection import Summed
from comity.privacy.ledger import Ledger
from comity.privacy.randomness import SeededNoise
from comity.study.local.cohort import Cohort
from experiments.papers import PAPERS
from experiments.papers.softlabel import har as softlabel_har
from experiments.papers.softlabel import kdd as softlabel_kdd
from experiments.papers.softlabel import mnist as softlabel_mnist
from experiments.papers.softlabel.default import EPSILONS, STATISTICS, Layout, case_of, over_hosts, released, reproduced
from experiments.papers.softlabel.release import DELTA, make_consortium, noisy_means, opened, shared_noise, total
from tests.support.noise import NoNoise

FIELDS = {"case", "ours", "spread", "repeats", "unit", "paper", "reference", "constant", "non_private", "note"}
data_folder = os.environ.get("COMITY_DATA", "")


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        not data_folder or not (Path(data_folder) / f"{name}.parquet").is_file(),
        reason=f"COMITY_DATA names no folder with {name}.parquet, as in CI",
    )


def layout(seed: int = 0, parties: int = 60) -> Layout:
    generator = np.random.default_rng(seed)
    centres = 3 * generator.normal(size=(3, 6))

    def drawn(*shape: int) -> Any:
        y = generator.integers(0, 3, shape)
        return centres[y] + generator.normal(size=(*shape, 6)), y

    (features, labels), (test, truth) = drawn(parties, 4), drawn(200)
    return Layout(features, labels, drawn(150)[0], test, truth, ("a", "b", "c"))


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    return {row["case"]: row for row in reproduced([layout(0), layout(1)], "test", draws=2)}


def test_rows_have_the_common_form_and_say_why(rows: dict[str, dict[str, Any]]) -> None:
    assert set(rows) == {case_of(statistic, epsilon) for statistic in STATISTICS for epsilon in EPSILONS}
    for case, row in rows.items():
        assert set(row) == FIELDS and row["repeats"] == 4
        assert 0 < row["constant"] < row["non_private"] <= 1
        assert ("noise " in row["note"]) == case.startswith("default")


def test_accuracy_falls_with_epsilon_and_sums_learn(rows: dict[str, dict[str, Any]]) -> None:
    assert rows[case_of("class-sums", 10.0)]["ours"] > 0.9
    assert rows[case_of("class-sums", 10.0)]["ours"] > rows[case_of("class-sums", 0.1)]["ours"]


def test_the_same_command_prints_the_same_figures(rows: dict[str, dict[str, Any]]) -> None:
    again = {row["case"]: row for row in reproduced([layout(0), layout(1)], "test", draws=2)}
    assert again == rows


@pytest.mark.parametrize("statistic", ["class-sums", "cells", "models", "votes"])
def test_the_sum_is_the_one_that_a_cohort_opens(statistic: Any) -> None:
    """Without noise; votes are summed by their mean, which rounds once instead of once for each party."""
    from experiments.papers.softlabel.default import contributions, mean_votes

    one = layout()
    protocol, consortium = one.protocol(statistic), make_consortium(60, 1.0, DELTA)
    found, release = opened(protocol, consortium)
    units = total(release, contributions(one, found, mean_votes(one)), consortium)
    cohort = Cohort(
        protocol,
        consortium,
        blocks=lambda most: iter([(one.features, one.labels, np.ones(one.labels.shape, bool))]),
        noise=NoNoise(),
        ledger=Ledger.in_memory(unit=consortium.unit, neighbours=consortium.neighbours),
        study="test",
        run="run",
    )
    expected = cohort.sum(protocol.contribute).value
    slack = 60 * release.spacing(consortium) if statistic == "votes" else 1e-6
    np.testing.assert_allclose(units * release.spacing(consortium), expected, atol=slack)


@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_noise_is_the_sum_of_every_partys_part(delta: Any) -> None:
    """Deviation of 60 parts where 59 were counted on, within six standard errors; pure ε has heavier tails."""
    one, consortium = layout(), make_consortium(60, 1.0, delta)
    protocol = one.protocol("votes")
    _, release = opened(protocol, consortium)
    assert isinstance(release.protection, Summed)
    source = SeededNoise(3)
    drawn = np.stack([shared_noise(release, consortium, source) for _ in range(400)]) * release.spacing(consortium) / 60
    ratio = drawn.std() / protocol.deviation(consortium)
    assert ratio == pytest.approx(1.0, abs=6 * np.sqrt((0.5 if delta else 1.5) / 400))
    means = list(noisy_means(release, np.zeros(release.shape, np.int64), consortium, SeededNoise(3), 2))
    np.testing.assert_allclose(means[0], drawn[0])
    assert (means[0] != means[1]).any()


def test_a_run_over_hosts_scores_as_the_sums_that_are_perturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With next to no noise both give the model of the same sum."""
    from experiments.papers.softlabel import default as softlabel_default

    one = layout(2, parties=8)
    monkeypatch.setattr(softlabel_default, "EPSILONS", (1e5,))
    ((_, fast),) = released(one, "test", 0, 1, ("auto",))
    assert fast > 0.8
    assert over_hosts(one, 1e5, seed=1) == pytest.approx(fast, abs=0.01)


def test_figures_of_reference_stand_beside_ours() -> None:
    case = case_of("votes", 1.0)
    found = reproduced([layout(0)], "test", draws=1, statistics=("votes",), reference={case: 0.5})
    assert {row["case"]: row["reference"] for row in found} == {
        case_of("votes", epsilon): 0.5 if epsilon == 1.0 else None for epsilon in EPSILONS
    }
    assert softlabel_kdd.REFERENCE["default M=5000 eps=0.01 delta=1e-06"] == 0.902
    assert softlabel_har.REFERENCE["default eps=0.1 delta=1e-06"] == 0.775


def stand_in_kdd() -> softlabel_kdd.Connections:
    generator = np.random.default_rng(5)
    labels = (np.arange(3000) % 5 > 0).astype(np.int64)
    counts = np.abs(generator.normal(size=(3000, 6)) + 3 * labels[:, None] * np.array([1, 0, 1, 0, 0, 0]))
    categories: Any = np.eye(3)[generator.integers(0, 3, 3000)]
    return softlabel_kdd.Connections(np.round(counts, 1), categories, labels, np.arange(3000) < 2600)


def test_intrusions_on_a_stand_in(tmp_path: Path) -> None:
    size = softlabel_kdd.Size(parties=(80, 40), records=22, auxiliary=200, splits=1, draws=2, sampled=5)
    found = {row["case"]: row for row in softlabel_kdd.reproduced(stand_in_kdd(), size, tmp_path, quick=True)}
    assert {"batch", "indiv", "soft non-private M=80", "soft non-private M=40"} <= set(found)
    for parties in (80, 40):
        for epsilon in softlabel_kdd.EPSILONS:
            for case in (
                softlabel_kdd.case_of("default", parties, epsilon, 0.0),
                softlabel_kdd.case_of("default", parties, epsilon, DELTA),
                softlabel_kdd.case_of("published soft", parties, epsilon, 0.0),
            ):
                more = 2 if parties == 40 and case.endswith("1e-06") else 1
                assert set(found[case]) == FIELDS and found[case]["repeats"] == 2 * more
    assert found[softlabel_kdd.case_of("default", 80, 10.0, 0.0)]["ours"] > 0.9
    assert (tmp_path / "softlabel-kdd.svg").is_file()


def test_trials_in_processes_give_what_they_give_one_after_the_other() -> None:
    size = softlabel_kdd.Size(parties=(20,), records=22, auxiliary=100, splits=2, draws=1, sampled=3)
    data = stand_in_kdd()
    assert list(softlabel_kdd.each_trial(data, size)) == [softlabel_kdd.scored(data, size, n) for n in range(2)]


def test_votes_of_distinct_rows_are_the_votes_of_all() -> None:
    size = softlabel_kdd.Size(parties=(30,), records=8, auxiliary=200)
    one = softlabel_kdd.trial(stand_in_kdd(), size, 0)
    np.testing.assert_array_equal(one.distinct[one.place], one.auxiliary)
    ((_, shares),) = softlabel_kdd.vote_shares(one, size)
    from comity.learn.local_models import linear_votes

    direct = linear_votes(one.features, one.labels, np.ones(one.labels.shape, bool), one.auxiliary, 2, softlabel_kdd.L2)
    np.testing.assert_allclose(shares, direct.mean(0))


def test_weights_before_a_map_score_as_after_it() -> None:
    size = softlabel_kdd.Size(parties=(30,), records=8, auxiliary=200)
    one = softlabel_kdd.trial(stand_in_kdd(), size, 0)
    from comity.learn.feature_map import fit_whitened_pca

    found = fit_whitened_pca(one.auxiliary, 4)
    weights = np.random.default_rng(0).normal(size=found.dimensions)
    before, intercept = softlabel_kdd.unmapped(found, weights)
    test: Any = one.test
    np.testing.assert_allclose(test @ before + intercept, found(test) @ weights, atol=1e-9)


def test_digits_on_a_stand_in(tmp_path: Path) -> None:
    generator = np.random.default_rng(6)
    labels = np.arange(900) % 10
    ink = generator.integers(0, 200, (10, 20))
    pixels = np.clip(ink[labels] + generator.normal(0, 20, (900, 20)), 0, 255).astype(np.uint8)
    size = softlabel_mnist.Size(parties=50, records=(4, 6), auxiliary=200, dimensions=10, splits=1, draws=2)
    found = softlabel_mnist.scored(softlabel_mnist.Digits(pixels, labels, np.arange(900) < 700), size, tmp_path)
    assert [row["case"] for row in found[:2]] == ["n=4 default eps=10 delta=1e-06", "n=4 default eps=1 delta=1e-06"]
    assert len(found) == 12 and found[0]["ours"] > found[0]["constant"]
    assert (tmp_path / "softlabel-mnist.png").is_file()


@pytest.mark.parametrize("name", ["softlabel-kdd", "softlabel-mnist"])
def test_without_data_one_sentence_names_the_variable(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv("COMITY_DATA", raising=False)
    with pytest.raises(DataError, match="COMITY_DATA"):
        PAPERS[name].run(quick=True, out=None)


BARS_OF_ACTIVITIES = {10.0: 0.915, 1.0: 0.895, 0.1: 0.74}
BARS_OF_INTRUSIONS = {
    softlabel_kdd.case_of("default", 20_000, 10.0, 0.0): 0.915,
    softlabel_kdd.case_of("default", 20_000, 1.0, 0.0): 0.915,
    softlabel_kdd.case_of("default", 20_000, 0.1, 0.0): 0.915,
    softlabel_kdd.case_of("default", 20_000, 0.01, 0.0): 0.91,
    softlabel_kdd.case_of("default", 5_000, 0.01, DELTA): 0.90,
}


@needs("har_smartphone_rederived")
@pytest.mark.long
def test_activities_reach_the_bars_and_hosts_agree() -> None:
    rows = {row["case"]: row for row in softlabel_har.by_default(softlabel_har.activities(), softlabel_har.FULL)}
    found = {epsilon: rows[case_of("auto", epsilon)]["ours"] for epsilon in BARS_OF_ACTIVITIES}
    assert all(found[epsilon] >= bar for epsilon, bar in BARS_OF_ACTIVITIES.items()), found
    fast, hosts = rows[case_of("auto", 1.0)], rows[f"{case_of('auto', 1.0)} over hosts"]
    assert abs(hosts["ours"] - fast["ours"]) <= 6 * fast["spread"]


@needs("kddcup99")
@pytest.mark.long
def test_intrusions_reach_the_bars() -> None:
    rows = {row["case"]: row for row in softlabel_kdd.run(quick=False, out=None)}
    found = {case: rows[case]["ours"] for case in BARS_OF_INTRUSIONS}
    assert all(found[case] >= bar for case, bar in BARS_OF_INTRUSIONS.items()), found
    assert rows[softlabel_kdd.case_of("default", 5_000, 0.01, DELTA)]["repeats"] >= 32


@needs("mnist")
@pytest.mark.long
def test_the_rule_is_no_worse_than_votes_on_digits() -> None:
    found = {row["case"]: row["ours"] for row in softlabel_mnist.run(quick=True, out=None)}
    for epsilon in EPSILONS:
        assert found["n=6 " + case_of("auto", epsilon)] >= found["n=6 " + case_of("votes", epsilon)]
