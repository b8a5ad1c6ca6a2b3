"""Which records are set aside: by position or identifier and a key, whatever the records say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.data import Records
from comity.errors import DataError, StudyError
from comity.federation.declare.evaluation import Evaluation, split_budget
from comity.federation.evaluation.holdout import (
    hold_out_by_coins,
    hold_out_by_identifier,
    hold_out_by_position,
    holdout_mask,
    select_records,
)
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import Approx, Pure
from comity.privacy.unit import Neighbours, Unit

REPLACE, ADD_REMOVE = Neighbours.REPLACE, Neighbours.ADD_REMOVE
TERMS = Evaluation(0.25, Pure(1), Pure(1), parallel=True)


def key(number: int = 0) -> bytes:
    return number.to_bytes(32, "big")


def records(count: int, seed: int = 0, ids: list[str] | None = None) -> Records:
    generator = np.random.default_rng(seed)
    names = None if ids is None else np.array(ids, object)
    return Records(generator.normal(size=(count, 2)), generator.integers(0, 2, count), names)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 101])
def test_under_replacement_sizes_follow_from_the_number_of_records(count: int) -> None:
    aside = holdout_mask(records(count), TERMS, key(), unit=Unit.RECORD, neighbours=REPLACE)
    assert aside.sum() == TERMS.count(count) == count // 4
    assert TERMS.left(max(count, 1)) == max(1, count - count // 4)


@pytest.mark.parametrize("neighbours", [REPLACE, ADD_REMOVE])
def test_what_records_say_does_not_move_them(neighbours: Neighbours) -> None:
    one, other = (
        holdout_mask(records(50, seed), TERMS, key(1), unit=Unit.RECORD, neighbours=neighbours) for seed in (1, 2)
    )
    assert (one == other).all()


def test_another_key_sets_other_records_aside_each_equally_often() -> None:
    often = np.mean([hold_out_by_position(20, 5, key(number)) for number in range(4000)], axis=0)
    assert np.abs(often - 0.25).max() < 0.03
    coins = np.array([hold_out_by_coins(20, 0.25, key(number)) for number in range(4000)])
    assert np.abs(coins.mean(axis=0) - 0.25).max() < 0.03
    assert np.abs(np.corrcoef(coins.T) - np.eye(20)).max() < 0.08


def test_a_fixed_number_would_move_others_when_a_record_goes() -> None:
    """Why coins: without the last record the lowest hashes of the rest are other ones, in a quarter of all cases."""
    moved = 0
    for number in range(200):
        whole, less = hold_out_by_position(8, 2, key(number))[:7], hold_out_by_position(7, 2, key(number))
        moved += int((whole != less).any())
        assert (hold_out_by_coins(8, 0.25, key(number))[:7] == hold_out_by_coins(7, 0.25, key(number))).all()
    assert moved > 20


def test_where_records_come_and_go_none_moves_another() -> None:
    given: dict[str, Any] = {"unit": Unit.RECORD, "neighbours": ADD_REMOVE}
    numbers = set()
    for number in range(40):
        whole, less = (holdout_mask(records(count), TERMS, key(number), **given) for count in (8, 7))
        assert (whole[:7] == less).all()
        numbers.add(int(whole.sum()))
    assert len(numbers) > 2


def test_a_person_lies_in_one_part_at_every_owner() -> None:
    ids = [f"p{number % 30}" for number in range(90)]
    aside = hold_out_by_identifier(np.array(ids, object), 0.3, key())
    parts = {name: {bool(one) for one, own in zip(aside, ids) if own == name} for name in ids}
    assert all(len(part) == 1 for part in parts.values())
    elsewhere = hold_out_by_identifier(np.array([" p3 ", "p1", "p2"], object), 0.3, key())
    assert [bool(one) for one in elsewhere] == [next(iter(parts[name])) for name in ("p3", "p1", "p2")]
    chosen = holdout_mask(records(90, ids=ids), TERMS, key(), unit=Unit.RECORD, neighbours=ADD_REMOVE)
    assert (chosen == hold_out_by_identifier(np.array(ids, object), 0.25, key())).all()


def test_persons_without_identifiers_are_refused() -> None:
    with pytest.raises(DataError, match="identifier"):
        holdout_mask(records(5), TERMS, key(), unit=Unit.PERSON, neighbours=REPLACE)


def test_the_parts_are_all_records() -> None:
    whole = records(9, ids=list("abcdefghi"))
    aside = hold_out_by_position(9, 3, key())
    one, other = select_records(whole, aside), select_records(whole, ~aside)
    assert sorted([*one.ids, *other.ids]) == list("abcdefghi")  # type: ignore[misc]
    assert len(one) == 3 and len(one.labels) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", [Unit.RECORD, Unit.PERSON])
def test_a_unit_in_one_part_pays_for_one(unit: Unit) -> None:
    loss = Approx(1, "1e-6")
    method, terms = split_budget(loss, unit, REPLACE, share=0.3)
    assert (method, terms.loss, terms.share, terms.parallel) == (loss, loss, 0.3, True)
    with pytest.raises(StudyError, match=r"evaluation\.budget"):
        split_budget(loss, unit, REPLACE, budget=0.1)


def test_a_whole_party_shares_its_budget_and_nothing_is_left_over() -> None:
    method, terms = split_budget(Pure(2), Unit.PARTY, REPLACE, budget=0.25)
    assert (method, terms.loss, terms.parallel) == (Pure("1.5"), Pure("0.5"), False)
    whole = Approx(2, "1e-6")
    method, terms = split_budget(whole, Unit.PARTY, REPLACE, budget=0.25)
    both = gaussian_budget(method).square + gaussian_budget(terms.loss).square
    assert both == gaussian_budget(whole).square and terms.pure == Pure("0.5")


@pytest.mark.parametrize(
    ("asked", "key_"), [({"share": 0.0}, "share"), ({"share": 0.6}, "share"), ({"budget": 1.0}, "budget")]
)
def test_shares_out_of_range_are_refused(asked: dict[str, float], key_: str) -> None:
    with pytest.raises(StudyError) as refusal:
        split_budget(Pure(1), Unit.PARTY, REPLACE, **asked)
    assert refusal.value.key == f"evaluation.{key_}"
