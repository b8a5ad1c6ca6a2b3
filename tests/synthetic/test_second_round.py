"""The second round: how far a record moves it, who chooses what it counts, how wide the noise of both together is."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations, product
from math import isclose, sqrt
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from comity.artefacts.artefact import load_artefact, save_artefact
from comity.audit.bound import mu_lower_bound
from comity.cli import main
from comity.data import Categorical, Numeric, Schema
from comity.errors import DataError, Refused, StudyError
from comity.federation.coordinator.lifecycle import run
from comity.federation.declare.bounds import Counts
from comity.federation.declare.protection import Summed
from comity.methods.synthetic import SyntheticProtocol, counts
from comity.methods.synthetic.counts import LAPLACE, RECOUNTED_PAIRS, Layout, Recount
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import GDP, Approx, Pure
from comity.privacy.randomness import SeededNoise
from comity.report.result import load_result
from comity.study.results.result import Result
from comity.study.simulation.simulate import Terms, simulate
from tests.averaging.default_consortium import make_consortium as rostered
from tests.averaging.default_consortium import parties
from tests.support.audits import SURE, draw_views
from tests.support.consortia import NAMES as TOY

from .consortia import (
    CLASSES,
    NAMES,
    build_as,
    build_synthetic,
    encode_records,
    make_consortium,
    make_frame,
    make_schema,
)

TWICE: dict[str, Any] = {"schema": make_schema(), "rounds": 2}
SMALL: dict[str, Any] = {
    "epsilon": 2.0,
    "delta": 1e-6,
    "unit": "record",
    "seed": 1,
    "terms": Terms(neighbours="add-remove"),
}
LAYOUTS = [
    Layout((2, 3, 2, 2), 3),
    Layout((2, 3, 2)),
    Layout((2, 3, 2, 2), 3, emphasis=LAPLACE),
    Layout((2, 2, 3, 2, 2), 4, {1: 0}),
]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few pairs that there is something to choose in a small schema."""
    monkeypatch.setattr(counts, "RECOUNTED_PAIRS", 2)


def held_by(built: Any, size: int = 20) -> dict[Any, Any]:
    return {name: encode_records(built, size + k, k) for k, name in enumerate(TOY[:5])}


def released(built: Any, consortium: Any, held: Any, **how: Any) -> Any:
    coordinator, hosts = parties(built, held, consortium, **how)
    return run(coordinator), hosts


# What leaves, and how far one record moves it.


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("replaced", [False, True])
def test_whatever_is_chosen_no_record_moves_the_second_round_further_than_its_bound(
    few: None, layout: Any, replaced: bool
) -> None:
    recount = Recount(layout)
    bound = Counts(recount.weights, replaced, 100)
    every = np.array(list(product(*map(range, layout.sizes))))
    furthest = []
    for chosen in combinations(range(len(recount.candidates)), recount.chosen_count):
        pairs = np.array(chosen)
        before = recount.count(pairs, every[:2])
        assert before.shape == (recount.counts,)
        moved = [recount.count(pairs, np.vstack([every[:2], row])) for row in every]
        ends = list(product(moved, moved)) if replaced else [(one, before) for one in moved]
        l1 = max(np.abs(one - other).sum() for one, other in ends)
        l2 = max(np.linalg.norm(one - other) for one, other in ends)
        assert l1 <= bound.l1 and l2 <= bound.l2
        furthest.append((l1, l2))
    # And every choice has a record that moves it as far, so none would need more or less noise than another.
    assert all(isclose(l1, bound.l1) and isclose(l2, bound.l2) for l1, l2 in furthest)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_the_second_release_is_scaled_for_the_tables_that_it_counts(neighbours: str) -> None:
    built, consortium = build_synthetic(**TWICE), make_consortium(neighbours=neighbours)
    release, weights = built.accepted(consortium)["again"], built.recount(consortium).weights
    factor = sqrt(2) if neighbours == "replace" else 1.0
    assert isclose(release.sensitivity, factor * sqrt(sum(weight * weight for weight in weights)))
    assert isclose(
        release.scale(consortium).total, release.sensitivity / sqrt(float(cast(GDP, release.loss).square)), rel_tol=1e-6
    )


@pytest.mark.parametrize("loss", [Approx(0.7, 1e-6), Approx(3.0, 1e-9), Pure("0.7"), Pure(3)], ids=str)
def test_both_rounds_together_cost_what_the_study_grants_and_no_more(loss: Any) -> None:
    consortium = make_consortium(loss)
    declared = build_synthetic(**TWICE, model="mixture").accepted(consortium)
    costs = [declared[name].loss for name in ("counts", "again")]
    if isinstance(loss, Pure):
        parts, whole = [cast(Pure, one).epsilon for one in costs], loss.epsilon
    else:
        parts, whole = [cast(GDP, one).square for one in costs], gaussian_budget(loss).square
    assert sum(parts) <= whole
    assert [float(part / whole) for part in parts] == pytest.approx([0.4, 0.6], abs=1e-12)


def test_nobody_sees_an_exact_sum_of_either_round() -> None:
    declared = build_synthetic(**TWICE).accepted(make_consortium())
    assert all(isinstance(declared[name].protection, Summed) and declared[name].loss for name in ("counts", "again"))
    assert cast(Any, declared["opened"].protection).of == cast(Any, declared["pairs"].protection).of == ("counts",)
    assert [one.name for one in declared.releases] == ["counts", "opened", "pairs", "again", "tables"]


# Who chooses.


def test_the_strongest_pairs_are_chosen_and_wide_tables_of_noise_are_not(few: None) -> None:
    layout, chance = Layout((2, 2, 30, 30, 4, 4, 2), 6), np.random.default_rng(0)
    codes = np.column_stack([chance.integers(0, size, 4000) for size in layout.sizes])
    codes[:, 1], codes[:, 5] = codes[:, 0], codes[:, 4]
    recount, opened = Recount(layout), layout.count(codes) + np.rint(chance.normal(0, 150, layout.counts))
    found = [recount.candidates[place].key for place in recount.find_strongest(opened, 150.0)]
    assert found == [(0, 1), (4, 5)]
    # Without what noise adds, the widest table would seem the strongest.
    assert (2, 3) in [recount.candidates[place].key for place in recount.find_strongest(opened, 0.0)]


def test_the_choice_is_a_function_of_what_the_first_round_opened(few: None) -> None:
    built, consortium = build_synthetic(**TWICE), rostered(neighbours="add-remove")
    found, _ = released(built, consortium, held_by(built, 300), noise=SeededNoise(3))
    tables = found["tables"]
    assert (built._find_strongest(tables["counts"], consortium) == tables["pairs"]).all()
    # The order in which numbers lie in memory, which decides how they are summed, decides nothing.
    turned = np.asarray(tables["counts"])[::-1].copy()[::-1]
    assert (built._find_strongest(turned, consortium) == tables["pairs"]).all()


class Choosy(SyntheticProtocol):
    """A coordinator that asks for pairs that it chose itself; its sites follow the program."""

    def _count_twice(self, parties: Any) -> Any:
        first = parties.sum(self.count)
        honest = self._find_strongest(first.value, parties.consortium)
        others = [k for k in range(len(self.recount(parties.consortium).candidates)) if k not in honest]
        wanted = np.array(sorted([*honest[1:].tolist(), others[0]]))
        parties.sum(self.count_again, opened=first.value, pairs=wanted)
        raise AssertionError("an owner counted what it should have refused")


def test_an_owner_refuses_another_list_and_draws_nothing_for_it(few: None) -> None:
    built, consortium = build_as(Choosy, **TWICE), rostered(neighbours="add-remove")
    coordinator, hosts = parties(built, held_by(built), consortium)
    with pytest.raises(Refused, match="count_again") as refused:
        run(coordinator)
    assert (refused.value.code, refused.value.key) == ("form", "pairs")
    first = cast(GDP, built.declare(consortium)["counts"].loss).square
    for host in hosts.values():
        spent = host.store.ledger.summary()[0].spent
        assert spent.gaussian == first


@pytest.mark.parametrize("pairs", [[-1, 0], [0, 99], [1, 0], [1, 1]])
def test_a_list_that_is_none_is_refused(few: None, pairs: Any) -> None:
    built, consortium = build_synthetic(**TWICE), rostered(neighbours="add-remove")

    class Wrong(SyntheticProtocol):
        def _count_twice(self, asked: Any) -> Any:
            first = asked.sum(self.count)
            return asked.sum(self.count_again, opened=first.value, pairs=np.array(pairs))

    coordinator, _ = parties(build_as(Wrong, **TWICE), held_by(built), consortium)
    with pytest.raises(Refused):
        run(coordinator)


# What both rounds know.


def test_without_noise_both_rounds_count_the_same_records() -> None:
    built, consortium = build_synthetic(**TWICE), rostered(neighbours="add-remove")
    held = held_by(built)
    found, _ = released(built, consortium, held)
    tables, recount = found["tables"], built.recount(consortium)
    codes = np.vstack([one.features for one in held.values()])
    assert (tables["counts"] == built.counting(consortium).layout.count(codes)).all()
    assert (tables["again"] == recount.count(tables["pairs"], codes)).all()
    presented = built.present(found, consortium).counts
    assert np.allclose(presented.values, tables["counts"])
    twice = {key for key, factor in zip(presented.counting.layout.keys, cast(Any, presented.narrowed)) if factor < 1}
    assert twice == {block.key for block in recount.blocks(tables["pairs"])}


@pytest.mark.parametrize("loss", [None, Pure(1.0)], ids=["delta", "pure"])
def test_the_deviations_that_are_stated_are_those_of_both_rounds(few: None, loss: Any) -> None:
    built, consortium = build_synthetic(**TWICE, model="mixture"), rostered(loss, neighbours="add-remove")
    held = held_by(built)
    exact = built.counting(consortium).layout.count(np.vstack([one.features for one in held.values()]))
    gaps: dict[Any, Any] = {"once": [], "twice": []}
    for seed in range(2):
        counts = built.present(released(built, consortium, held, noise=SeededNoise(seed))[0], consortium).counts
        truth = counts.counting.layout.tables(exact)
        for key, factor in zip(truth, cast(Any, counts.narrowed)):
            gap = (counts.tables[key] - truth[key]) / counts.deviations[key]
            gaps["twice" if factor < 1 else "once"].append(gap.ravel())
    for kind, found in gaps.items():
        standard = np.concatenate(found)
        assert np.std(standard) == pytest.approx(1.0, abs=0.15), kind
        assert abs(standard.mean()) < 5 / sqrt(len(standard)), kind


def test_the_mean_of_both_is_weighted_by_inverse_variance(few: None) -> None:
    recount = Recount(LAYOUTS[0])
    pairs, chance = np.array([0, 2]), np.random.default_rng(1)
    deviations, draws = (3.0, 1.5), 2000
    found = [
        recount.combine(
            chance.normal(0, deviations[0], recount.layout.counts),
            chance.normal(0, deviations[1], recount.counts),
            pairs,
            deviations,
        )
        for _ in range(draws)
    ]
    spread = np.std([one.values for one in found], axis=0)
    wide = np.repeat(found[0].narrowed, [block.cells for block in recount.layout.blocks])
    assert spread == pytest.approx(deviations[0] * wide, rel=0.1)
    assert min(wide) == pytest.approx(1 / sqrt(1 + (3.0 / 1.5) ** 2)) and max(wide) == 1.0


def test_a_party_lost_in_between_leaves_the_first_round_alone() -> None:
    built, consortium = build_synthetic(**TWICE), rostered(neighbours="add-remove", dropouts=1)
    held = held_by(built)
    found, _ = released(built, consortium, held, lose=((TOY[4], "count_again[0]"),))
    assert (found["tables"]["parties"], found["tables"]["parties_again"]) == (5, 4)
    counts = built.present(found, consortium).counts
    assert counts.narrowed is None and (counts.values == found["tables"]["counts"]).all()


def test_many_parties_in_stacks_count_twice(few: None) -> None:
    built = build_synthetic(**TWICE, model="mixture")
    whole = encode_records(built, 2200)
    held = {f"p{k}": replace_rows(whole, slice(2 * k, 2 * k + 2)) for k in range(1100)}
    found = simulate(built, parties=held, **SMALL)
    assert found.presented.counts.narrowed is not None
    assert abs(found.presented.counts.records - 2200) < 300


def replace_rows(whole: Any, rows: Any) -> Any:
    return replace(whole, features=whole.features[rows], labels=whole.labels[rows])


# What a consumer works with.


@pytest.fixture(scope="module")
def presented() -> Result:
    held = {name: make_frame(300, k) for k, name in enumerate(NAMES[:3])}
    return simulate(build_synthetic(**TWICE), parties=held, **SMALL)


def test_a_run_folder_holds_both_rounds_and_further_products_come_of_it(
    presented: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    presented.save(tmp_path / "run")
    again = load_result(tmp_path / "run")
    for name, kept in {"coordinator": {"counts", "again"}, NAMES[0]: {"opened", "pairs"}}.items():
        assert kept <= set(again.received_by(name))
    tables = again.received_by(NAMES[0])["tables"]
    assert (tables["again"] == presented.released["tables"]["again"]).all()
    assert main(["synth", str(tmp_path / "run"), "--table"]) == 0
    assert "deviation" in capsys.readouterr().out


def test_it_is_saved_and_read_again_with_its_deviations(presented: Any, tmp_path: Path) -> None:
    save_artefact(presented.presented, tmp_path)
    again, before = load_artefact(tmp_path), presented.presented
    assert (
        cast(Any, again).counts.deviations == cast(Any, before).counts.deviations
        and cast(Any, again).counts.digest == cast(Any, before).counts.digest
    )
    assert "tables counted twice" in before.card().parts["How it was made"]


@pytest.mark.parametrize("wrong", [[0.5], [2.0], "x", [float("nan")], None])
def test_damaged_factors_are_one_clear_error(presented: Any, tmp_path: Path, wrong: Any) -> None:
    save_artefact(presented.presented, tmp_path)
    page = json.loads((tmp_path / "counts.json").read_text())
    if wrong is not None and len(wrong) == 1 and wrong != [0.5]:
        wrong = list(wrong) * len(page["narrowed"])
    (tmp_path / "counts.json").write_text(json.dumps({**page, "narrowed": wrong}))
    with pytest.raises(DataError, match="no counts can be read here"):
        load_artefact(tmp_path)


def test_error_bars_are_drawn_with_the_deviation_of_each_table(presented: Any) -> None:
    counts = presented.presented.counts

    class Ones:
        def normal(self, shape: Any) -> np.ndarray:
            return np.ones(shape)

    layout = counts.counting.layout
    moved = layout.tables(counts.add_noise(Ones()) - counts.values)
    assert {key: table.flat[0] for key, table in moved.items()} == pytest.approx(dict(counts.deviations))


def test_everyone_is_released_both_rounds(presented: Any) -> None:
    assert {"counts", "again", "pairs", "parties", "parties_again"} == set(presented.released["tables"])
    assert set(presented.presented_to) == set(NAMES[:3])


def test_the_plan_says_what_is_counted_twice_and_how_narrow_that_is() -> None:
    built, consortium = build_synthetic(**TWICE, rows=900), make_consortium()
    said = " ".join(built.notes(consortium))
    assert (
        "two rounds: the first counts all tables with 40% of the loss" in said
        and "chosen from the opened counts" in said
    )
    assert "two rounds" in built.title_in(consortium)
    once, twice = (build_synthetic(schema=make_schema(), rounds=k)._planned_deviations(consortium) for k in (1, 2))
    labelled = built.recount(consortium).labelled[0].key
    assert twice[labelled] < once[labelled] and twice[(0,)] > once[(0,)]


# Where there is no second round.


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"rounds": 3}, "less than or equal to 2"),
        ({"rounds": 2, "pooling": "none"}, 'belongs to synthetic.pooling = "sum"'),
        ({"rounds": 2, "schema": Schema((Numeric("x", 0.0, 1.0),), CLASSES)}, "no pair beside"),
    ],
)
def test_what_can_not_be_is_refused_with_its_key(how: Any, said: str) -> None:
    with pytest.raises(StudyError, match=said) as refused:
        build_synthetic(**{"schema": make_schema(), **how})
    assert refused.value.key == "synthetic.rounds"


@pytest.mark.parametrize("how", [{"model": "naive-bayes"}, {"rows": 3000}])
def test_naive_bayes_has_no_other_pairs_to_count_again(how: Any) -> None:
    built = replace(build_synthetic(**TWICE), **how)
    with pytest.raises(StudyError, match="naive-bayes") as refused:
        built.accepted(make_consortium(Pure(0.05)))
    assert refused.value.key == "synthetic.rounds"


# What a reader of both rounds can tell.


def estimate_loss(
    built: Any, consortium: Any, rows: Any, seed: Any, count: Any, *, stretched: float = 1.0, whole: bool = False
) -> list[tuple[Any, list[tuple[Any, ...]]]]:
    """The likelihood ratio of both rounds, the second of pairs that the first chose, over `count` runs. `stretched`
    counts the record so many times; with `whole` each round spends all of the loss."""
    declared = built.declare(consortium)
    recount, layout = built.recount(consortium), built.counting(consortium).layout
    releases = [declared["counts"], declared["again"]]
    if whole:
        noise = built._noise(consortium)
        releases = [replace(one, protection=Summed(noise)) for one in releases]
    others, codes = rows
    apart = stretched * (layout.count(codes) - layout.count(others))
    deviation = [one.opened_deviation(consortium, consortium.honest_parts) for one in releases]
    found = []
    for side in (1, 0):
        first = draw_views(releases[0], consortium, layout.count(others) + side * apart, seed + side, count=count)
        noise = draw_views(releases[1], consortium, np.zeros(recount.counts), seed + 10 + side, count=count)
        scores = first @ apart / deviation[0] ** 2
        chosen = [tuple(recount.find_strongest(view, deviation[0]).tolist()) for view in first]
        for pairs in set(chosen):
            here = [place for place, one in enumerate(chosen) if one == pairs]
            before, after = (recount.count(np.array(pairs), one) for one in (others, codes))
            moved = stretched * (after - before)
            # Without the other records' counts, which the reader knows.
            scores[here] += (noise[here] + side * moved) @ moved / deviation[1] ** 2
        found.append((scores, chosen))
    return found


THREE = Schema(tuple(Categorical(name, ("a", "b")) for name in "uvw"), CLASSES)


@pytest.mark.long
def test_both_rounds_together_lose_no_more_than_is_debited_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "RECOUNTED_PAIRS", 1)
    built, consortium = build_synthetic(schema=THREE, rounds=2), make_consortium(Approx(6.0, 1e-6))
    others = np.array([[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1]])
    rows = (others, np.vstack([others, [0, 0, 0, 0]]))
    claimed = sqrt(float(gaussian_budget(consortium.loss).square))

    def measured(**how: Any) -> float:
        (one, chosen), (other, also) = estimate_loss(built, consortium, rows, 5, 20_000, **how)
        # The choice really varies, and is no clearer than the counts that it is made from.
        assert len(set(chosen)) == len(set(also)) == 3
        return mu_lower_bound(one, other, confidence=SURE)

    assert 0.7 * claimed < measured() <= claimed
    # Controls: a record that is counted twice, and rounds that each spend the whole loss.
    assert measured(stretched=2.0) > claimed
    assert measured(whole=True) > claimed


def test_a_usual_schema_has_more_pairs_than_are_counted_again() -> None:
    wide = Schema(tuple(Numeric(f"x{k}", 0.0, 1.0, bins=2) for k in range(9)), CLASSES)
    recount = build_synthetic(schema=wide, rounds=2).recount(make_consortium())
    assert (recount.chosen_count, len(recount.candidates), len(recount.labelled)) == (RECOUNTED_PAIRS, 36, 9)
