from __future__ import annotations

import itertools
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comity.errors import Refused
from comity.privacy.accounting import convert
from comity.privacy.loss import GDP, ZCDP, Approx, Pure
from comity.privacy.unit import Neighbours, Unit

PARTY, PERSON, RECORD = Unit.PARTY, Unit.PERSON, Unit.RECORD
REPLACE, ADD_REMOVE = Neighbours.REPLACE, Neighbours.ADD_REMOVE
SIZE = {RECORD: 0, PERSON: 1, PARTY: 2}

figures = st.decimals(0, 8, places=6)
losses = st.one_of(
    figures.map(Pure),
    figures.map(GDP),
    figures.map(ZCDP),
    st.builds(Approx, figures, st.decimals("1e-12", "1e-5", places=13)),
)
kinds = st.tuples(st.sampled_from(Unit), st.sampled_from(Neighbours))


def _figures(loss: Any) -> list[Any]:
    return [getattr(loss, name) for name in ("epsilon", "square", "rho", "delta") if hasattr(loss, name)]


@given(losses, kinds, kinds)
def test_only_upwards_and_never_cheaper(loss: Any, start: Any, end: Any) -> None:
    outwards = SIZE[end[0]] > SIZE[start[0]]
    if outwards or (start[1] is REPLACE and end[1] is ADD_REMOVE):
        with pytest.raises(Refused):
            convert(loss, *start, *end)
        return
    converted = convert(loss, *start, *end)
    assert type(converted) is type(loss)
    assert all(after >= before for after, before in zip(_figures(converted), _figures(loss), strict=True))


@given(losses, st.sampled_from(Unit), st.sampled_from(Unit))
def test_replacing_a_whole_covers_replacing_its_parts_at_the_same_loss(loss: Any, outer: Any, inner: Any) -> None:
    if SIZE[inner] <= SIZE[outer]:
        assert convert(loss, outer, REPLACE, inner, REPLACE) == loss


@given(losses, st.sampled_from(Unit))
def test_nothing_to_convert_costs_nothing(loss: Any, unit: Any) -> None:
    assert convert(loss, unit, ADD_REMOVE, unit, ADD_REMOVE) == loss


def test_a_replacement_is_a_removal_and_an_addition() -> None:
    def to_replace(loss: Any) -> Any:
        return convert(loss, RECORD, ADD_REMOVE, RECORD, REPLACE)

    assert to_replace(Pure("0.7")) == Pure("1.4")
    assert to_replace(ZCDP("0.1")) == ZCDP("0.4")
    assert to_replace(GDP("0.1")) == GDP("0.2")
    doubled = to_replace(Approx(1, 1e-6))
    assert doubled.epsilon == 2
    assert float(doubled.delta) == pytest.approx((1 + math.e) * 1e-6, rel=1e-14)
    assert doubled.delta >= (1 + Decimal(1).exp()) * Decimal("1e-6")
    assert to_replace(Approx(1, 0)) == Approx(2, 0)


def test_a_party_with_one_record_less_is_two_steps_from_the_whole_party() -> None:
    assert convert(Pure(1), PARTY, ADD_REMOVE, RECORD, ADD_REMOVE) == Pure(2)
    assert convert(Pure(1), PARTY, ADD_REMOVE, RECORD, REPLACE) == Pure(2)


@pytest.mark.parametrize("loss", [Approx(20, 1e-6), Approx(5000, "1e-290")])
def test_a_conversion_that_promises_nothing_is_refused(loss: Any) -> None:
    with pytest.raises(Refused, match="nothing"):
        convert(loss, RECORD, ADD_REMOVE, RECORD, REPLACE)


def test_a_refusal_names_both_ends() -> None:
    for (unit, relation), (unit_to, relation_to) in itertools.product(
        [(RECORD, REPLACE)], [(PARTY, REPLACE), (RECORD, ADD_REMOVE)]
    ):
        with pytest.raises(Refused) as caught:
            convert(Pure(1), unit, relation, unit_to, relation_to)
        assert all(word in str(caught.value) for word in (unit, relation, unit_to, relation_to))
