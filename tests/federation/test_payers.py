"""What a unit loses whose records lie at two parties that pay for different releases."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

from comity.federation.declare import payers
from comity.privacy.loss import Loss, Pure

TRAINING, HOLDOUT = "training", "set aside"


def release(name: str, epsilon: str) -> Any:
    return SimpleNamespace(name=name, loss=Pure(epsilon), debits=1)


def loss_at(monkeypatch: Any, one: list[Any], other: list[Any], parts: dict[str, str]) -> Decimal:
    """The most that a unit at two parties loses, of which each pays for one of the lists."""
    groups = tuple(
        payers.Group(parties=(name,), releases=tuple(own), parts=parts)
        for name, own in (("ash", one), ("birch", other))
    )
    monkeypatch.setattr(payers, "payer_groups", lambda declaration, consortium: groups)
    doubled: dict[str, Loss] = {one.name: Pure(2 * one.loss.epsilon) for one in (*one, *other)}
    consortium = cast(Any, SimpleNamespace(loss=Pure(1)))
    return payers.spent_at_two_parties(cast(Any, None), consortium, doubled).pure


def test_a_unit_may_be_trained_on_at_one_party_and_measured_on_at_the_other(monkeypatch: Any) -> None:
    parts = {"model": TRAINING, "quality": HOLDOUT}
    assert loss_at(monkeypatch, [release("model", "1.0")], [release("quality", "0.7")], parts) == Decimal("1.7")


def test_what_both_pay_for_counts_twice_in_the_dearest_part(monkeypatch: Any) -> None:
    parts = {"model": TRAINING, "quality": HOLDOUT, "sizes": ""}
    own = [release("model", "1.0"), release("quality", "0.7")]
    assert loss_at(monkeypatch, own, own, parts) == 2
    assert loss_at(monkeypatch, [*own, release("sizes", "0.1")], own, parts) == Decimal("2.1")
