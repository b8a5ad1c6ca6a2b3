"""Repeats with fresh noise, and few parties as stacks: what they report, and that they are what hosts would give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from comity.data import Records
from comity.errors import StudyError
from comity.federation.evaluation.assessment import Assessment, Figure, Repeats
from comity.methods.averaging import Averaging, AveragingProtocol
from comity.report.result import load_result
from comity.study.simulation.repeats import WITH_HOSTS, WITHOUT_MASKS
from comity.study.simulation.simulate import RunOptions, simulate
from tests.averaging.default_consortium import make_records, protocol
from tests.support.protocols import simulate_with

RECORDS = make_records("logistic", (300,) * 5)
TEST = make_records("logistic", (200,) * 5)["elm"]


def run(**options: Any) -> Any:
    given = {"epsilon": 2.0, "delta": 1e-6, "unit": "record", "test": TEST, "seed": 1, "baselines": False, **options}
    return simulate_with(given.pop("protocol", protocol(records=RECORDS, rounds=3)), parties=RECORDS, **given)


def test_repeats_have_fresh_noise_and_report_mean_spread_and_worst() -> None:
    found = run(repeats=6).assessment
    assert found.repeats is not None and found.repeats.count == 6 and found.repeats.how == WITHOUT_MASKS
    assert set(found.repeats.values) == {"error", "AUC", "log loss"}
    losses = found.repeats.values["log loss"]
    assert len(set(losses)) == 6
    spread = found.repeats.spreads["error"]
    assert spread.mean == pytest.approx(np.mean(found.repeats.values["error"]))
    assert found.repeats.worst == spread.most >= spread.mean >= spread.least
    assert "6 repeats" in found.repeats.sentence() and f"worst {found.repeats.worst:.3f}" in found.repeats.sentence()
    assert found.sections[-1].heading == "Repeats" and len(found.sections[-1].plots[0].dots) == 6


def test_a_seed_repeats_its_repeats_and_another_does_not() -> None:
    first, again, other = (run(repeats=3, seed=seed).assessment.repeats for seed in (4, 4, 5))
    assert first == again and first.values["log loss"] != other.values["log loss"]


def test_repeats_vary_as_runs_with_hosts_do() -> None:
    repeated = run(repeats=40).assessment.repeats.spreads["log loss"]
    single = [run(seed=seed).assessment.figures[1].value for seed in range(6)]
    assert abs(np.mean(single) - repeated.mean) < 4 * repeated.spread / np.sqrt(6) + 1e-3
    assert 0.3 * repeated.spread < np.std(single) < 3 * repeated.spread


def test_a_method_that_asks_single_parties_repeats_with_hosts() -> None:
    built = protocol(records=RECORDS, solver="average")
    found = run(protocol=built, repeats=2).assessment.repeats
    assert found.how == WITH_HOSTS and found.count == 2 and len(set(found.values["log loss"])) == 2


def test_the_sums_of_records_alone_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    whole = AveragingProtocol.second_moment

    def counted(self: Any, site: Any) -> None:
        asked.append(1)
        whole(self, site)

    cast(Any, counted).spec = cast(Any, whole).spec
    monkeypatch.setattr(AveragingProtocol, "second_moment", counted)
    run(repeats=5, hosts=False)
    # One for the run itself, one for all of its repeats.
    assert len(asked) == 2


def test_repeats_need_something_to_measure() -> None:
    with pytest.raises(StudyError, match="test records") as found:
        run(repeats=2, test=None)
    assert found.value.key == "repeats"
    with pytest.raises(StudyError, match="whole number"):
        run(repeats=-1)


def test_repeats_are_saved_shown_and_read_again(tmp_path: Path) -> None:
    result = simulate(
        protocol(records=RECORDS, rounds=3),
        parties=RECORDS,
        epsilon=2.0,
        delta=1e-6,
        unit="record",
        test=TEST,
        seed=1,
        options=RunOptions(hosts=False, repeats=3),
    )
    result.save(tmp_path)
    assert load_result(tmp_path).assessment.repeats == result.assessment.repeats
    page = json.loads((tmp_path / "result.json").read_text())
    assert page["repeats"]["count"] == 3 and page["repeats"]["worst"] == cast(Any, result.assessment.repeats).worst
    assert set(page["repeats"]["spreads"]["AUC"]) == {"mean", "spread", "least", "most"}
    html = (tmp_path / "report.html").read_text()
    assert "Repeats" in html and "without masks" in html and "ran as stacks" in html
    card = next(tmp_path.glob("model/*CARD.md")).read_text()
    assert "repeats" in card and "AUC" in card and "log loss" in card
    assert "log loss" in "".join(line for line in card.splitlines() if line.startswith("- pooled"))


def test_figures_that_not_every_repeat_has_are_left_out() -> None:
    found = Repeats.of("x", [Assessment(0.1, figures=(Figure("AUC", 0.9),)), Assessment(0.3)])
    assert found.values == {"error": (0.1, 0.3)} and found.worst == 0.3
    assert Repeats.of("x", [Assessment(), Assessment()]).worst is None


def test_few_parties_may_run_as_stacks_and_the_result_says_so() -> None:
    stacked, hosted = run(hosts=False), run()
    assert not stacked.masks and hosted.masks and len(stacked.accounts) == 1
    assert stacked.guarantee.epsilon == hosted.guarantee.epsilon
    assert stacked.transcript.bytes < hosted.transcript.bytes
    # Noise of stacks and of hosts comes from other streams: alike, not equal.
    assert np.linalg.norm(stacked.released["model"] - hosted.released["model"]) > 0


def test_stacks_refuse_what_they_cant_run() -> None:
    built = protocol(records=RECORDS, solver="average")
    with pytest.raises(StudyError, match="made at one site at a time"):
        run(protocol=built, hosts=False)
    with pytest.raises(StudyError, match="journal"):
        run(hosts=False, journal="somewhere")


def test_six_hundred_parties_as_stacks() -> None:
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(600, 20, 10))
    rows /= np.linalg.norm(rows, axis=-1, keepdims=True)
    many = {f"p{at}": Records(x, (x[:, 0] > 0).astype(int)) for at, x in enumerate(rows)}
    found = simulate(
        Averaging.over_rows(features=10, sizes=20),
        parties=many,
        epsilon=4.0,
        delta=1e-6,
        unit="record",
        seed=1,
        test=many["p0"],
        options=RunOptions(hosts=False),
    )
    assert found.parties == 600 and found.error is not None and found.error < 0.3
