"""One release, many products: rows, tables, correlations and regressions of the same counts, with honest error bars."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from comity.cli import main
from comity.data import Categorical, Classes, Numeric, Schema
from comity.errors import DataError
from comity.methods.synthetic.artefact import NoisyCounts, SyntheticDataset
from comity.methods.synthetic.counts import fit_counting
from comity.methods.synthetic.statistics import cell_middles
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from comity.privacy.unit import Neighbours, Unit
from comity.study.simulation.simulate import RunOptions, Terms, simulate

from .consortia import build_synthetic, make_frame, make_schema

PLAIN = Schema(
    (
        Numeric("age", 0.0, 100.0, bins=5),
        Numeric("dose", 0.0, 10.0, bins=4),
        Categorical("arm", ("a", "b", "c")),
        Numeric("score", 0.0, 50.0, bins=10),
    ),
    Classes("ill", ("no", "yes")),
)


def trial(count: int, seed: int = 0) -> pd.DataFrame:
    chance = np.random.default_rng(seed)
    age, dose = chance.uniform(0, 100, count), chance.uniform(0, 10, count)
    arm = chance.choice(["a", "b", "c"], count)
    score = (10 + 0.2 * age + 1.0 * dose + 4 * (arm == "b") + chance.normal(0, 3, count)).clip(0, 50)
    ill = np.where(chance.uniform(size=count) < age / 150, "yes", "no")
    return pd.DataFrame({"age": age, "dose": dose, "arm": arm, "score": score, "ill": ill})


def released(seed: int, own: pd.DataFrame, deviation: float = 60.0, of: Schema = PLAIN) -> SyntheticDataset:
    counting = fit_counting(of)
    exact = counting.layout.count(counting.encoding.encode(own).records.features)
    values = exact + np.random.default_rng(seed).normal(0, deviation, exact.shape)
    return SyntheticDataset(NoisyCounts(counting, "mixture", values, deviation, None, 3))


OWN = trial(20_000)


def by_name(table: Any) -> dict[Any, Any]:
    return {row[:-2]: row[-2:] for row in table.rows}


def test_error_bars_of_table_one_hold_the_truth_as_often_as_they_say() -> None:
    exact = by_name(released(0, OWN, 1e-6).table_one())
    misses = []
    for seed in range(6):
        found = by_name(released(seed, OWN).table_one())
        misses += [abs(found[key][0] - exact[key][0]) / found[key][1] for key in found if key[2] != "count"]
    assert 0.9 < np.mean(np.array(misses) < 1.96) <= 0.99


def test_table_one_is_about_the_records() -> None:
    found = by_name(released(1, OWN, 5.0).table_one())
    assert found["all", "age", "mean"][0] == pytest.approx(OWN["age"].mean(), abs=0.5)
    assert found["all", "score", "quantile 50%"][0] == pytest.approx(OWN["score"].median(), abs=1.0)
    assert found["all", "arm = b", "share"][0] == pytest.approx((OWN["arm"] == "b").mean(), abs=0.01)
    assert found["all", "ill = yes", "count"][0] == pytest.approx((OWN["ill"] == "yes").sum(), abs=20)


def test_table_one_by_group_is_about_each_group() -> None:
    found = by_name(released(1, OWN, 5.0).table_one(by="ill"))
    for label in ("no", "yes"):
        own = OWN[OWN["ill"] == label]
        assert found[f"ill = {label}", "age", "mean"][0] == pytest.approx(own["age"].mean(), abs=0.7)
    assert not any(key[1].startswith("ill") for key in found)


def test_correlations_come_with_error_bars_that_hold() -> None:
    exact: Any = {row[:2]: row[2] for row in released(0, OWN, 1e-6).correlations().rows}
    assert exact["age", "ill"] > 0.25 and abs(exact["age", "dose"]) < 0.03
    missed = []
    for seed in range(6):
        rows: Any = released(seed, OWN).correlations().rows
        missed += [abs(row[2] - exact[row[:2]]) / row[3] for row in rows]
    assert np.mean(np.array(missed) < 1.96) > 0.88


def in_cells(own: pd.DataFrame) -> np.ndarray:
    """Ordinary least squares of the score on what the counts can say of the records."""
    made = released(0, own, 1e-6).counts
    codes = made.counting.encoding.encode(own).records.features.astype(int)
    age, dose, score, ill = (cast(Any, cell_middles(made, k))[codes[:, k]] for k in (0, 1, 3, 4))
    rows = np.column_stack([np.ones(len(own)), age, dose, codes[:, 2] == 1, codes[:, 2] == 2, ill])
    found: np.ndarray = np.linalg.lstsq(rows, score, rcond=None)[0]
    return found


def test_a_regression_from_counts_is_the_one_on_the_records_in_their_cells() -> None:
    table = released(0, OWN, 1e-6).regression("score")
    assert table.column("term") == ("(intercept)", "age", "dose", "arm = b", "arm = c", "ill = yes")
    assert np.allclose(cast(Any, table.column("coefficient")), in_cells(OWN), atol=1e-3)
    assert table.column("coefficient")[1] == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize("releases", [8, pytest.param(60, marks=pytest.mark.long)])
def test_intervals_of_a_regression_hold_the_truth_as_often_as_they_say(releases: int) -> None:
    true, held = in_cells(OWN), []
    for seed in range(releases):
        table = released(seed, OWN).regression("score")
        held += [low <= value <= high for low, high, value in zip(table.column("low"), table.column("high"), true)]
    assert np.mean(held) > 0.9


def test_a_regression_that_noise_covers_is_refused_and_one_on_fewer_columns_is_not() -> None:
    noisy = released(0, OWN, 1500.0)
    with pytest.raises(DataError, match=r"noise covers the differences between the 5 terms.*name fewer columns"):
        noisy.regression("score")
    assert len(noisy.regression("score", on=["age"]).rows) == 2


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (lambda one: one.regression("arm"), "'arm', which has no order"),
        (lambda one: one.regression("cost"), "'cost' is no column"),
        (lambda one: one.regression("score", on=["score"]), "explain itself"),
        (lambda one: one.table_one(by="cost"), "'cost' is no column"),
        (lambda one: one.rows(target="cost"), "'cost' can't be the target"),
        (lambda one: one.rows(0), "rows must lie between"),
    ],
)
def test_what_can_t_be_made_is_refused_with_the_reason(asked: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        asked(released(0, OWN))


def test_what_was_not_counted_is_not_made() -> None:
    sparse = fit_counting(PLAIN).sparser
    exact = sparse.layout.count(sparse.encoding.encode(OWN).records.features)
    few = SyntheticDataset(NoisyCounts(sparse, "naive-bayes", exact + 0.0, 5.0, None, 3))
    with pytest.raises(DataError, match="were not counted together"):
        few.regression("score")
    with pytest.raises(DataError, match="can't be the target"):
        few.rows(target="arm")
    assert {row[1] for row in few.correlations().rows} == {"ill"}
    assert by_name(few.table_one(by="ill"))["ill = yes", "age", "mean"][0] > 50


def test_another_number_of_rows_and_another_target() -> None:
    made = released(0, OWN, 20.0)
    assert len(made.rows(123)) == 123
    aimed = made.rows(8000, target="arm")
    higher = aimed.groupby("arm")["score"].mean()
    assert higher["b"] - higher["a"] > 2.0
    # A number is drawn with the other columns.
    assert len(made.rows(200, target="score")) == 200


def test_products_of_every_kind_of_column() -> None:
    made = released(0, make_frame(3000), 5.0, make_schema())
    found = by_name(made.table_one())
    assert found["all", "income = (missing)", "share"][0] == pytest.approx(0.1, abs=0.03)
    assert found["all", "age = 18 to 35", "count"][0] > 0
    assert ("all", "seen", "mean") in found and ("all", "town = (other)", "count") in found
    assert all(np.isfinite(cast(Any, row[-1])) for row in made.correlations().rows)
    assert "income = (missing)" in made.regression("age", on=["income", "town"]).column("term")
    with pytest.raises(DataError, match="missing values"):
        made.regression("income")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run")
    ledgers = {}
    for name in ("ash", "birch"):
        ledgers[name] = Ledger.create(
            place / f"{name}.ledger",
            dataset=name,
            grant=Approx(3, 1e-6),
            unit=Unit.RECORD,
            neighbours=Neighbours.ADD_REMOVE,
        )
    found = simulate(
        build_synthetic(schema=PLAIN),
        parties={"ash": trial(4000, 1), "birch": trial(4000, 2)},
        epsilon=2.0,
        delta=1e-6,
        unit="record",
        terms=Terms(neighbours="add-remove"),
        options=RunOptions(ledgers=ledgers),
    )
    found.save(place / "run")
    return place


@pytest.mark.parametrize(
    "asked",
    [
        ("--rows", "50", "--to", "rows.parquet"),
        ("--target", "arm", "--rows", "50", "--to", "rows.csv"),
        ("--table",),
        ("--table", "--by", "ill"),
        ("--correlations",),
        ("--regress", "score", "--on", "age", "--on", "dose"),
        ("--regress", "score", "--on", "age", "--to", "fit.csv"),
    ],
)
def test_products_of_a_run_leave_every_ledger_as_it_is(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asked: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    heads = {path.name: Ledger(path).head() for path in run_folder.glob("*.ledger")}
    assert main(["synth", str(run_folder / "run"), *asked]) == 0
    assert {path.name: Ledger(path).head() for path in run_folder.glob("*.ledger")} == heads and len(heads) == 2
    if "--to" in asked:
        assert (tmp_path / asked[asked.index("--to") + 1]).is_file()
    else:
        assert "deviation" in capsys.readouterr().out


@pytest.mark.parametrize(
    "asked",
    [(), ("--table", "--correlations"), ("--rows", "5"), ("--by", "ill", "--correlations"), ("--on", "age", "--table")],
)
def test_a_wrong_way_to_ask_is_usage(run_folder: Path, asked: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", str(run_folder / "run"), *asked]) == 2
    assert capsys.readouterr().err
