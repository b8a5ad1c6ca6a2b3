"""The figures and bounds of Pathak, Rane and Raj (2010) on a stand-in for Adult, and verdicts that go both ways."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from comity.data import Records
from comity.errors import ComityError
from experiments.data.adult_bins import Adult
from experiments.papers.averaging import exhibits
from experiments.papers.averaging.adult import EPSILONS, HARDEST, SPLITS, Split, without_constant
from experiments.papers.averaging.exhibits import (
    CURVE,
    EXHIBITS,
    SHARES,
    Dealt,
    Errors,
    Size,
    attained_loss,
    evaluate_bounds,
    judge_bound,
    judge_everywhere,
    judge_figure,
    judge_loss,
    judge_protocol,
    plot_errors,
    run_protocol,
)
from experiments.papers.exhibit import Exhibit, Measured, Verdict
from experiments.papers.publications import PUBLICATIONS


@pytest.fixture(scope="module")
def stand_in() -> Adult:
    generator = np.random.default_rng(2)
    x = np.hstack([generator.normal(size=(1500, 4)), np.ones((1500, 1))])
    x /= np.linalg.norm(x, axis=1, keepdims=True) * (1 + 1e-9)
    y = (x @ generator.normal(size=5) + 0.1 * generator.normal(size=1500) > 0).astype(np.int64)
    return Adult(Records(x[:1000], y[:1000]), Records(x[1000:], y[1000:]))


def require_sources(exhibit: Exhibit) -> None:
    for line in exhibit.lines:
        assert line.source and line.why
        assert line.paper is not None or "plots it only" in line.source
    assert exhibit.trends and all(trend.evidence for trend in exhibit.trends)
    assert all(bool(trend.why) == (trend.verdict != "agrees") for trend in exhibit.trends)


def test_the_paper_is_listed_with_three_computations() -> None:
    (paper,) = [one for one in PUBLICATIONS if one.method == "averaging"]
    assert paper.computations() == EXHIBITS and len(EXHIBITS) == 3


def test_without_data_the_usual_sentence_is_raised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("COMITY_DATA", raising=False)
    monkeypatch.setenv("COMITY_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for compute in EXHIBITS:
        with pytest.raises(ComityError, match="COMITY_DATA"):
            compute(quick=True, out=tmp_path)


def test_figure_1_is_a_run_of_the_protocol_with_the_noise_of_the_smallest(stand_in: Adult) -> None:
    exhibit = run_protocol(without_constant(stand_in), runs=1)
    require_sources(exhibit)
    shares, noise, error = exhibit.lines
    assert shares.published == Measured(SHARES)
    assert noise.published is not None and 0.2 < noise.published.mean < 3.0
    assert error.published is not None and 0 <= error.published.mean <= 1
    assert {trend.verdict for trend in exhibit.trends} == {"agrees"}


def test_noise_of_another_party_and_a_missing_share_are_noticed() -> None:
    right = judge_protocol(Measured(1.02), Measured(SHARES), 123)
    wrong = judge_protocol(Measured(0.5), Measured(SHARES - 1), 123)
    assert [one.verdict for one in right] == ["agrees", "agrees"]
    assert [one.verdict for one in wrong] == ["differs", "differs"]


def test_figure_2_has_every_split_both_references_and_both_objectives(
    stand_in: Adult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, float]] = []

    def released(protocol: object, split: Split, epsilon: float, delta: float, seed: int) -> float:
        asked.append((split.name, epsilon))
        return 0.2

    # Whole runs of the default are the subject of other tests.
    monkeypatch.setattr(exhibits, "released", released)
    exhibit = plot_errors(stand_in, Size(draws=3, runs=1), tmp_path)
    require_sources(exhibit)
    assert asked == [(name, epsilon) for name in SPLITS for epsilon in EPSILONS]
    cases = {line.case: line for line in exhibit.lines}
    for loss in ("mean", "sum"):
        assert cases[f"w*, {loss} of losses"].non_private is not None
        for epsilon in CURVE:
            for name in ("w* + eta", *(f"{split} split" for split in SPLITS)):
                line = cases[f"{name}, {loss} of losses, epsilon {epsilon:g}"]
                assert line.published is not None and line.published.repeats == 3 and line.constant is not None
                assert (line.default is not None) == (name != "w* + eta" and epsilon in EPSILONS)
    assert len(cases) == 2 * (1 + 4 * len(CURVE)) == len(exhibit.lines)
    ((picture, caption),) = exhibit.pictures
    assert ElementTree.parse(picture).getroot().tag.endswith("svg") and caption


def curves(values: dict[str, float], slope: float, pooled: float = 0.1) -> Errors:
    """Errors that change by `slope` from epsilon to epsilon, ending at `values`."""
    steps = [slope * (len(CURVE) - 1 - place) for place in range(len(CURVE))]

    def curve(end: float) -> dict[float, Measured]:
        return {epsilon: Measured(end + step, 1e-6, 4) for epsilon, step in zip(CURVE, steps)}

    flat = {epsilon: Measured(pooled, 1e-6, 4) for epsilon in CURVE}
    return Errors(0.1, values, flat, {name: curve(end) for name, end in values.items()})


def verdicts(errors: Errors) -> list[Verdict]:
    return [trend.verdict for trend in judge_figure(errors, "sum", 0.1)]


def test_the_verdicts_on_figure_2_go_both_ways() -> None:
    as_said = curves({"even": 0.100, "15 %": 0.102, HARDEST: 0.105}, slope=0.01)
    assert verdicts(as_said) == ["agrees"] * 7
    opposite = curves({"even": 0.305, "15 %": 0.302, HARDEST: 0.300}, slope=-0.01, pooled=0.9)
    assert verdicts(opposite) == ["reversed", "reversed", "reversed", "differs", "differs", "reversed", "differs"]
    level = curves(dict.fromkeys(SPLITS, 0.1), slope=0.0)
    assert verdicts(level) == ["differs", "differs", "differs", "agrees", "agrees", "differs", "agrees"]


def test_a_difference_within_its_error_decides_nothing() -> None:
    sure = curves({"even": 0.100, "15 %": 0.102, HARDEST: 0.105}, slope=0.01)
    unsure = replace(
        sure,
        averaged={
            name: {epsilon: replace(one, spread=0.1) for epsilon, one in curve.items()}
            for name, curve in sure.averaged.items()
        },
    )
    assert verdicts(unsure)[0] == "differs" and verdicts(sure)[0] == "agrees"
    invisible = curves({"even": 0.1, "15 %": 0.1, HARDEST: 0.1001}, slope=0.01)
    assert verdicts(invisible)[0] == "differs"


def test_comparisons_are_one_verdict_if_none_contradicts() -> None:
    assert judge_everywhere(["differs", "agrees"]) == "agrees"
    assert judge_everywhere(["differs", "reversed"]) == "reversed"
    assert judge_everywhere(["agrees", "reversed"]) == judge_everywhere(["differs"]) == "differs"


def test_bounds_stand_beside_measured_values_and_the_bound_that_holds_is_above(stand_in: Adult) -> None:
    exhibit = evaluate_bounds(without_constant(stand_in), draws=3)
    require_sources(exhibit)
    numbers = [line.case.split(":")[0] for line in exhibit.lines]
    assert [numbers.count(f"Theorem {one}") for one in ("4.1", "4.2", "4.3", "4.4")] == [2, 4, 12, 12]
    for line in exhibit.lines:
        assert line.published is not None
        if not line.case.startswith("Theorem 4.1"):
            holds = float(line.why.rpartition(" ")[2])
            assert line.published.mean <= holds
    broken = {trend.claim.split()[1]: trend.verdict for trend in exhibit.trends}
    assert broken["4.2"] == broken["4.3"] == "differs"


def test_the_verdict_on_a_bound_goes_both_ways() -> None:
    case = Dealt("a case", (), np.zeros(1), np.zeros(1), random=True)
    assert judge_bound("4.2", [(case, 0.1, 0.2)]).verdict == "agrees"
    assert judge_bound("4.2", [(case, 0.1, 0.2), (case, 0.3, 0.2)]).verdict == "differs"


def test_the_loss_of_one_record_is_attained_and_judged() -> None:
    assert attained_loss(2, 123) == pytest.approx(123**0.5 / 4, rel=1e-3)
    assert judge_loss({2: 2.77}, 123).verdict == "differs"
    assert judge_loss({10: 0.55}, 123).verdict == "agrees"
