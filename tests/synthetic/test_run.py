"""The protocol whole: real sites and sums, what is released to whom, what the rows are like."""

from __future__ import annotations

from math import sqrt
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from comity.data import Records
from comity.errors import ComityError, StudyError
from comity.federation.coordinator.lifecycle import run
from comity.federation.declare.protection import Noised, Summed
from comity.privacy.loss import Approx, Pure
from comity.privacy.randomness import SeededNoise
from comity.study.simulation.simulate import Terms, simulate
from tests.averaging.default_consortium import make_consortium as rostered
from tests.averaging.default_consortium import parties
from tests.support.consortia import NAMES as TOY

from .consortia import CLASSES, NAMES, NUMBER, build_synthetic, encode_records, make_consortium, make_frame, make_schema

SMALL: dict[str, Any] = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "unit": "record",
    "seed": 1,
    "terms": Terms(neighbours="add-remove"),
}


def counted(built: Any, consortium: Any, given: Any) -> Any:
    layout = built.counting(consortium).layout
    return sum(layout.count(one.features) for one in given)


def test_without_noise_the_sum_is_the_count_of_all_records() -> None:
    built, consortium = build_synthetic(schema=make_schema()), rostered(neighbours="add-remove")
    held = {name: encode_records(built, 20 + k, k) for k, name in enumerate(TOY[:5])}
    coordinator, _ = parties(built, held, consortium)
    released = run(coordinator)
    assert set(released) == {"tables"}
    assert (released["tables"]["counts"] == counted(built, consortium, held.values())).all()
    assert released["tables"]["parties"] == 5


def test_with_a_party_lost_the_sum_is_that_of_the_others_and_says_so() -> None:
    built, consortium = build_synthetic(schema=make_schema()), rostered(neighbours="add-remove", dropouts=1)
    held = {name: encode_records(built, 20 + k, k) for k, name in enumerate(TOY[:5])}
    coordinator, _ = parties(built, held, consortium, lose=((TOY[4], "count[0]"),))
    released = run(coordinator)
    assert released["tables"]["parties"] == 4
    assert (released["tables"]["counts"] == counted(built, consortium, list(held.values())[:4])).all()
    lost, whole = (built._present_counts(released["tables"]["counts"], n, consortium).counts.deviation for n in (4, 5))
    assert whole == pytest.approx(lost * sqrt(5 / 4))


def test_a_party_without_records_takes_part() -> None:
    built, consortium = build_synthetic(schema=make_schema()), rostered(neighbours="add-remove")
    held = {name: encode_records(built, 0 if k == 0 else 10, k) for k, name in enumerate(TOY[:5])}
    coordinator, _ = parties(built, held, consortium)
    assert run(coordinator)["tables"]["parties"] == 5


def test_records_that_are_no_cells_stop_the_run_before_anything_is_drawn() -> None:
    built, consortium = build_synthetic(schema=make_schema()), rostered(neighbours="add-remove")
    held = {name: encode_records(built, 10, k) for k, name in enumerate(TOY[:5])}
    held[TOY[0]] = Records(held[TOY[0]].features + 100, held[TOY[0]].labels)
    coordinator, hosts = parties(built, held, consortium)
    with pytest.raises(ComityError):
        run(coordinator)
    assert float(hosts[TOY[0]].store.ledger.summary()[0].spent.epsilon_at(cast(Approx, consortium.loss).delta)) == 0


@pytest.mark.parametrize("loss", ["delta", "pure"])
@pytest.mark.parametrize("pooling", ["sum", "none"])
def test_the_deviation_that_the_release_states_is_that_of_its_noise(loss: str, pooling: Any) -> None:
    built = build_synthetic(schema=make_schema(), pooling=pooling, model="mixture")
    consortium = rostered(Pure(1.0) if loss == "pure" else None, neighbours="add-remove")
    held = {name: encode_records(built, 20 + k, k) for k, name in enumerate(TOY[:5])}
    coordinator, _ = parties(built, held, consortium, noise=SeededNoise(3))
    presented = built.present(run(coordinator), consortium)
    gap = presented.counts.values - counted(built, consortium, held.values())
    assert np.std(gap) == pytest.approx(presented.counts.deviation, rel=0.15)
    assert abs(gap.mean()) < 5 * presented.counts.deviation / sqrt(len(gap))


def test_everyone_receives_the_noisy_counts_and_makes_the_same_rows_of_them() -> None:
    held = {name: make_frame(300, k) for k, name in enumerate(NAMES[:3])}
    found = simulate(
        build_synthetic(schema=make_schema()),
        parties=held,
        **{**SMALL, "terms": Terms(schema=make_schema(), neighbours="add-remove")},
    )
    assert set(found.presented_to) == set(held)
    for one in found.presented_to.values():
        pd.testing.assert_frame_equal(one.frame, found.presented.frame)


def test_nobody_sees_an_exact_sum() -> None:
    built, consortium = build_synthetic(schema=make_schema()), make_consortium()
    declared = built.accepted(consortium)
    assert isinstance(declared["counts"].protection, Summed) and declared["counts"].loss is not None
    assert cast(Any, declared["tables"].protection).of == ("counts",)
    assert [one.name for one in declared.releases] == ["counts", "tables"]


def test_the_number_of_rows_comes_from_the_noisy_total() -> None:
    held = {name: make_frame(400, k) for k, name in enumerate(NAMES[:3])}
    sizes = {
        len(
            simulate(
                build_synthetic(schema=make_schema(), model="naive-bayes"), parties=held, **{**SMALL, "seed": s}
            ).presented
        )
        for s in range(3)
    }
    assert len(sizes) > 1 and all(abs(size - 1200) < 200 for size in sizes)


def test_where_records_are_replaced_the_declared_number_is_the_number_of_rows() -> None:
    held = {name: make_frame(400, k) for k, name in enumerate(NAMES[:3])}
    built = build_synthetic(schema=make_schema(), rows=1200)
    found = simulate(built, parties=held, **{**SMALL, "terms": Terms()})
    assert len(found.presented) == 1200
    assert found.declaration["counts"].sensitivity == pytest.approx(
        sqrt(2) * built.declare(make_consortium())["counts"].sensitivity
    )


@pytest.mark.parametrize("target", [CLASSES, NUMBER, None], ids=["classes", "number", "none"])
def test_rows_load_as_the_records_did(target: Any) -> None:
    held = {name: make_frame(500, k, target) for k, name in enumerate(NAMES[:3])}
    found = simulate(build_synthetic(schema=make_schema(target)), parties=held, **SMALL).presented
    first = held[NAMES[0]]
    assert list(found.frame.columns) == list(first.columns)
    assert found.frame["age"].dtype == first["age"].dtype and found.frame["seen"].dtype.kind == "M"
    assert found.frame["age"].between(18, 90).all()
    assert set(found.frame["stage"]) <= {"one", "two", "three"}
    assert 0.02 < found.frame["income"].isna().mean() < 0.3
    # And are read by the schema as the records are, without a finding.
    again = build_synthetic(schema=make_schema(target)).encoding.encode(found.frame)
    assert len(again.records) == len(found) and not again.tally.clipped


def test_rows_know_what_the_records_knew() -> None:
    held = {name: make_frame(3000, k) for k, name in enumerate(NAMES[:3])}
    whole = pd.concat(held.values())
    found = simulate(build_synthetic(schema=make_schema()), parties=held, **SMALL).presented.frame
    for one in (whole, found):
        one["older"] = one["age"] >= 54
    shares = [one.groupby("older")["ill"].apply(lambda ill: (ill == "yes").mean()) for one in (whole, found)]
    assert np.abs(shares[0] - shares[1]).max() < 0.05
    assert abs((whole["town"] == "A").mean() - (found["town"] == "A").mean()) < 0.03
    north = found[found["town"].isin(["A", "B"])]["region"]
    assert (north == "north").mean() > 0.97


def test_each_party_alone_releases_its_own_counts_and_has_its_own_dataset() -> None:
    held = {name: make_frame(300 + 50 * k, k) for k, name in enumerate(NAMES[:3])}
    built = build_synthetic(schema=make_schema(), pooling="none")
    found = simulate(built, parties=held, **SMALL)
    assert isinstance(found.declaration["counts"].protection, Noised)
    assert (
        "each of them" not in found.guarantee.adversary
        and "including the coordinator and the other parties" in found.guarantee.adversary
    )
    assert set(found.beside) == {"data-1", "data-2", "data-3"}
    sizes = [len(cast(Any, one).frame) for one in found.beside.values()]
    assert all(abs(size - len(own)) < 150 for size, own in zip(sizes, held.values()))
    assert cast(Any, found.presented).counts.deviation == pytest.approx(
        sqrt(3) * cast(Any, found.beside["data-1"]).counts.deviation
    )


def test_an_agent_by_itself_releases_with_noise_of_its_own() -> None:
    found = simulate(build_synthetic(schema=make_schema()), parties={"ash": make_frame(800)}, **SMALL)
    assert isinstance(found.declaration["counts"].protection, Noised)
    assert abs(len(found.presented) - 800) < 150


def test_very_many_parties_are_simulated_in_stacks() -> None:
    built = build_synthetic(schema=make_schema(), model="naive-bayes")
    whole = encode_records(built, 3300)
    held = {
        f"p{k}": Records(whole.features[3 * k : 3 * k + 3], cast(Any, whole.labels)[3 * k : 3 * k + 3])
        for k in range(1100)
    }
    found = simulate(built, parties=held, **SMALL)
    assert abs(len(found.presented) - 3300) < 400
    with pytest.raises(StudyError, match="at most 1000 parties"):
        simulate(build_synthetic(schema=make_schema(), pooling="none"), parties=held, **SMALL)


def test_very_little_budget_leaves_the_pairs_with_the_label() -> None:
    consortium = make_consortium(Pure(0.05))
    built = build_synthetic(schema=make_schema(), rows=3000)
    assert built.choose_model(consortium) == "naive-bayes" and built.counting(consortium).sparse
    assert build_synthetic(schema=make_schema(), rows=3000).choose_model(make_consortium()) == "mixture"
    assert build_synthetic(schema=make_schema(), rows=3000, model="mixture").choose_model(consortium) == "mixture"
    assert "naive-bayes, because the noise of a pair" in " ".join(built.notes(consortium))
    # Without a figure for the records there is nothing to go by, and the plan says so.
    assert build_synthetic(schema=make_schema()).choose_model(consortium) == "mixture"
    assert "neither synthetic.rows nor synthetic.sizes" in " ".join(
        build_synthetic(schema=make_schema()).notes(consortium)
    )


def test_a_unit_that_it_does_not_protect_is_refused() -> None:
    with pytest.raises(StudyError, match=r'privacy\.unit = "record"'):
        simulate(build_synthetic(schema=make_schema()), parties={"ash": make_frame(5)}, epsilon=1.0, unit="party")
