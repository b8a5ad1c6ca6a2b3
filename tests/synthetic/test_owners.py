"""The party as a column: what is counted, how far a record moves it, what the rows say, and where it is refused."""

from __future__ import annotations

from dataclasses import replace
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import comity
from comity.artefacts.artefact import load_artefact, save_artefact
from comity.data import Categorical, Classes, Numeric, Schema
from comity.errors import StudyError
from comity.federation.coordinator.lifecycle import run
from comity.methods.synthetic import Synthetic
from comity.methods.synthetic.counts import Counting
from comity.methods.synthetic.owners import OWNER, add_owner_column
from comity.methods.synthetic.triples import find_triples
from comity.privacy.loss import Approx, Pure
from comity.report.overview import describe_trust
from comity.report.page import render_result
from comity.study.simulation.simulate import RunOptions, Terms, simulate
from tests.averaging.default_consortium import make_consortium as rostered
from tests.averaging.default_consortium import parties
from tests.support.consortia import NAMES as TOY

from .consortia import CLASSES, NAMES, build_synthetic, make_consortium, make_frame, make_schema

FIVE = TOY[:5]
BY_OWNER: dict[str, Any] = {"schema": make_schema(), "by_owner": True}
BARE = Schema((Numeric("income", 0, 100_000), Categorical("town", ("A", "B"))), Classes("ill", ("no", "yes")))


def make_bare(count: int, seed: int) -> pd.DataFrame:
    chance = np.random.default_rng(seed)
    income = np.round(np.exp(chance.normal(9, 1, count)).clip(0, 100_000))
    town = chance.choice(["A", "B"], count)
    return pd.DataFrame({"income": income, "town": town, "ill": np.where(chance.random(count) < 0.4, "yes", "no")})


def pool(frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """All records in one table, with the column that a curator of all of them would have."""
    return pd.concat([frame.assign(**{OWNER: name}) for name, frame in frames.items()], ignore_index=True)


def released_without_noise(built: Any, frames: dict[str, pd.DataFrame]) -> Any:
    held = {name: built.encoding.encode(frame).records for name, frame in frames.items()}
    consortium = rostered(neighbours="add-remove")
    return run(parties(built, held, consortium)[0])["tables"], consortium


def in_cells(counting: Counting, frame: pd.DataFrame) -> Any:
    return counting.encoding.encode(frame).records.features


# What is counted.


@pytest.mark.parametrize("schema", [make_schema(), make_schema(None)], ids=["labelled", "unlabelled"])
@pytest.mark.parametrize("options", [{}, {"model": "naive-bayes"}, {"rounds": 2}, {"triples": "counted"}], ids=str)
def test_counts_are_those_of_one_table_that_has_the_column(schema: Any, options: Any) -> None:
    built = build_synthetic(schema=schema, by_owner=True, **options)
    frames = {name: make_frame(15 + 4 * k, k, schema.target) for k, name in enumerate(FIVE)}
    tables, consortium = released_without_noise(built, frames)
    counting = Counting(add_owner_column(schema, FIVE), sparse=options.get("model") == "naive-bayes")
    records = in_cells(counting, pool(frames))
    np.testing.assert_array_equal(tables["counts"], counting.layout.count(records))
    if "rounds" in options:
        again = built.recount(consortium).count(tables["pairs"], records)
        np.testing.assert_array_equal(tables["again"], again)
    if "triples" in options:
        triples = find_triples(counting.layout)
        assert triples is not None and any(counting.cells.names[k] == OWNER for b in triples.blocks for k in b.key)
        groups = triples.choose_groups(tables["counts"])
        np.testing.assert_array_equal(tables["triples"], triples.count(groups, records))


@pytest.mark.parametrize("triples", ["counted", "none"])
def test_counts_in_measured_cells_are_those_of_one_table_that_has_the_column(triples: Any) -> None:
    built = build_synthetic(schema=BARE, by_owner=True, edges="measured", triples=triples)
    frames = {name: make_bare(30 + k, k) for k, name in enumerate(FIVE)}
    tables, consortium = released_without_noise(built, frames)
    measured = Synthetic(BARE, edges="measured", triples="none").protocol()
    schema = measured.measured_counting(consortium, tables["narrow"]).schema  # type: ignore[union-attr]
    counting = Counting(add_owner_column(schema, FIVE))
    np.testing.assert_array_equal(tables["counts"], counting.layout.count(in_cells(counting, pool(frames))))
    presented = built.present({"tables": tables}, consortium)
    assert list(presented.frame) == ["income", "town", OWNER, "ill"]


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("loss", [Approx(1.0, 1e-6), Pure(1)], ids=str)
def test_noise_is_that_of_a_schema_with_one_more_category(neighbours: str, loss: Any) -> None:
    consortium = make_consortium(loss, neighbours=neighbours)
    options: dict[str, Any] = {"rows": 600, "triples": "counted"}
    found = build_synthetic(**BY_OWNER, **options).accepted(consortium)
    wide = build_synthetic(schema=add_owner_column(make_schema(), consortium.parties), **options).accepted(consortium)
    for name in ("counts", "triples"):
        assert found[name].shape == wide[name].shape and found[name].loss == wide[name].loss
        assert isclose(found[name].sensitivity, wide[name].sensitivity)
        assert (
            found[name].sensitivity
            > build_synthetic(schema=make_schema(), **options).accepted(consortium)[name].sensitivity
        )


# What the rows say.


def three_owners(count: int) -> dict[str, pd.DataFrame]:
    """Owners that differ: the first has none of the last town's people, the second twice as many records."""
    frames = {name: make_frame(count * (2 if k == 1 else 1), k) for k, name in enumerate(NAMES[:3])}
    first = frames[NAMES[0]]
    first.loc[~first["town"].isin(["A"]), ["town", "region"]] = ["A", "north"]
    return frames


def simulated(seed: int = 1, **options: Any) -> Any:
    terms = Terms(schema=make_schema(), neighbours="add-remove")
    built = build_synthetic(**{**BY_OWNER, "rows": 8000, **options})
    return simulate(
        built,
        parties=three_owners(2000),
        test=make_frame(500, 9),
        epsilon=20.0,
        delta=1e-6,
        unit="record",
        seed=seed,
        terms=terms,
    )


def test_rows_say_which_owners_records_they_are_like_and_all_else_is_as_before(tmp_path: Path) -> None:
    found = simulated()
    frame = found.presented.frame
    assert list(frame) == [*make_schema().names[:6], OWNER, "ill"]
    shares = frame[OWNER].value_counts(normalize=True)
    assert [shares[name] for name in NAMES[:3]] == pytest.approx([0.25, 0.5, 0.25], abs=0.02)
    first = frame[OWNER] == NAMES[0]
    assert (frame.loc[first, "town"] == "A").mean() > 0.95
    assert (frame.loc[~first, "town"] == "A").mean() == pytest.approx(0.4, abs=0.05)
    # It is compared with test records by the columns that these have.
    assert found.error is not None and found.error < found.baseline("constant").error
    save_artefact(found.presented, tmp_path)
    loaded = load_artefact(tmp_path)
    assert loaded.counts.digest == found.presented.counts.digest  # type: ignore[attr-defined]
    assert list(loaded.frame) == list(frame)  # type: ignore[attr-defined]


@pytest.mark.parametrize("options", [{}, {"rounds": 2}, {"triples": "counted"}], ids=str)
def test_the_counts_without_the_column_are_those_of_a_study_without_it(options: Any) -> None:
    counts = simulated(**options).presented.counts
    fewer = counts.without(OWNER)
    plain = Counting(make_schema())
    assert fewer.counting.schema == plain.schema and OWNER not in fewer.frame(50)
    names = counts.counting.cells.names
    for key, table in fewer.tables.items():
        whole = tuple(names.index(plain.cells.names[k]) for k in key)
        np.testing.assert_array_equal(table, counts.tables[whole])
        assert fewer.deviations[key] == counts.deviations[whole]


def test_an_owner_scores_the_rows_that_are_like_its_own() -> None:
    built, presented = build_synthetic(**BY_OWNER), simulated().presented
    # A dataset in which the label is the owner: only a score that knows whose records they are can use it.
    frame = presented.frame.copy()
    frame["ill"] = np.where(frame[OWNER] == NAMES[1], "yes", "no")
    told = replace(presented, read=frame)
    records = built.encoding.encode(make_frame(400, 5).assign(ill="yes")).records
    wrong = {name: score.error for name in NAMES[:2] if (score := built.score_own(told, records, name)) is not None}
    assert wrong[NAMES[1]] < 0.05 and wrong[NAMES[0]] > 0.95


def test_the_plan_says_what_becomes_visible() -> None:
    notes = build_synthetic(**BY_OWNER).notes(make_consortium())
    assert any("how many records each of 3 parties holds" in note for note in notes)
    assert not any("owners:" in note for note in build_synthetic(schema=make_schema()).notes(make_consortium()))
    trusted = {
        by_owner: " ".join(
            describe_trust(comity.Synthetic(make_schema(), by_owner=by_owner).plan(list(NAMES), epsilon=1, delta=1e-6))
        )
        for by_owner in (True, False)
    }
    assert "sees figures of each party, by name" in trusted[True] and "no party's own values" not in trusted[True]
    assert "sees figures of each party" not in trusted[False] and "no party's own values" in trusted[False]


def test_the_page_of_a_saved_run_says_it_too(tmp_path: Path) -> None:
    frames = {name: make_frame(200, seed) for seed, name in enumerate(NAMES)}
    for by_owner in (True, False):
        result = comity.Synthetic(make_schema(), by_owner=by_owner).simulate(frames, epsilon=1, seed=3)
        result.save(tmp_path / str(by_owner))
        page = render_result(comity.load_result(tmp_path / str(by_owner)))
        assert ("figures of each party, by name" in page) is by_owner
        assert ("own value" in page) is not by_owner


# Where it is refused.


@pytest.mark.parametrize(
    "schema",
    [
        Schema((Categorical(OWNER, ("a", "b")), Numeric("age", 0, 9, bins=3)), CLASSES),
        Schema((Numeric("age", 0, 9, bins=3), Categorical("town", ("a", "b"))), Classes(OWNER, ("a", "b"))),
        Schema(tuple(Categorical(f"c{k}", ("a", "b")) for k in range(63)), CLASSES),
    ],
    ids=["column", "target", "many"],
)
def test_a_schema_without_room_for_the_column_is_refused(schema: Any) -> None:
    with pytest.raises(StudyError) as caught:
        build_synthetic(schema=schema, by_owner=True)
    assert caught.value.key == "synthetic.by_owner"


@pytest.mark.parametrize(
    "options",
    [{"variant": "published"}, {"pooling": "none"}, {"columns": {"ash": ("age",), "elm": ("town",)}}],
    ids=str,
)
def test_where_no_sum_of_whole_records_is_counted_it_is_refused(options: Any) -> None:
    schema = Schema((Numeric("age", 0, 9, bins=3), Categorical("town", ("a", "b"))))
    with pytest.raises(StudyError, match="by_owner"):
        comity.Synthetic(schema, by_owner=True, **options).plan(["ash", "elm"], epsilon=1)


def test_more_counts_than_a_release_has_are_refused() -> None:
    wide = Schema(tuple(Categorical(f"c{k}", tuple(map(str, range(120)))) for k in range(4)), CLASSES)
    parties_of = tuple(f"p{k}" for k in range(250))
    build_synthetic(schema=wide, by_owner=True).declare(make_consortium())
    many = replace(make_consortium(), parties=parties_of)
    with pytest.raises(StudyError) as caught:
        build_synthetic(schema=wide, by_owner=True).declare(many)
    assert caught.value.key == "synthetic.by_owner"


def test_stacks_of_parties_do_not_know_whose_records_are_whose_and_are_refused() -> None:
    with pytest.raises(StudyError, match="it asks each party by itself"):
        simulate(
            build_synthetic(**BY_OWNER),
            parties=three_owners(50),
            epsilon=1.0,
            delta=1e-6,
            unit="record",
            terms=Terms(schema=make_schema(), neighbours="add-remove"),
            options=RunOptions(hosts=False),
        )


def test_a_study_that_does_not_ask_for_it_keeps_its_hash() -> None:
    def hashed(**options: Any) -> str:
        return comity.Synthetic(make_schema(), **options).study(list(NAMES), epsilon=1, delta=1e-6).hash

    assert hashed(by_owner=False) == hashed() != hashed(by_owner=True)
