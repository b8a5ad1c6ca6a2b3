"""Owners that pool what they saw in an auction learn no more than it declares, and broken auctions are caught."""

from __future__ import annotations

import pytest

from comity.audit import auction
from comity.audit.auction import AUCTION, auction_claims
from comity.audit.claim import Effort
from comity.methods.summary.auction.method import ask_mechanism

SURE = 0.99999
EFFORT = Effort(draws=8_000, pure_draws=200_000)


def test_an_auction_loses_no_more_than_declared_and_its_twins_are_caught() -> None:
    asked, sums = auction_claims(EFFORT, SURE)
    assert AUCTION == 2 and asked.held and sums.held
    assert asked.design == pytest.approx(asked.claimed, rel=0.01) and asked.measured > 0.85 * asked.claimed
    # Records in several rounds do not move the sums in one direction: the pair shows two thirds of the claim.
    assert 0.6 * sums.claimed < sums.design < sums.claimed and sums.measured > 0.88 * sums.design
    controls = (*asked.controls, *sums.controls)
    assert len(controls) == 5 and all(control.caught for control in controls), controls


def test_a_declaration_that_counts_one_colluder_of_two_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = ask_mechanism
    monkeypatch.setattr(auction, "ask_mechanism", lambda loss, readers, missed: mechanism(loss, 1, missed))
    asked = next(auction_claims(EFFORT, SURE))
    assert not asked.held
