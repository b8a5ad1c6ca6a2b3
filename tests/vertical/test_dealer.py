"""Against whom a bound holds where the coordinator deals: what a site can check of dealt words, and what it can't."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from comity.crypto import dealer_waves as waves
from comity.entropy import derive
from comity.errors import ComityError
from comity.federation.coordinator.lifecycle import run
from comity.federation.plan import plan
from comity.methods.vertical.dealer_rounds import DealerRounds
from comity.methods.vertical.rounds import LARGEST_RESIDUAL, WIDEST
from tests.support.noise import NoNoise
from tests.support.vertical import (
    build_gradients,
    build_regression,
    encode_parts,
    host_parties,
    make_consortium,
    make_people,
)

ASSUMED = "deals correctly"


def test_false_words_of_a_dealer_exceed_the_bound() -> None:
    """The attack that no site can see: shares are uniform words to it, whatever they add up to."""
    rows = 8
    honest = waves.deal_waves([derive(b"test", number) for number in range(2)], rows, WIDEST)
    assert honest[-1].rest is not None
    false = replace(honest[-1], rest=honest[-1].rest + np.uint64(1 << 46))
    shown = waves.open_angles([waves.mask_angles(hand, np.zeros(rows, np.uint16)) for hand in honest])

    def response(hands: Any) -> float:
        total: Any = sum(waves.evaluate_share(hand, WIDEST, shown) for hand in hands)
        return float(np.abs(total.view(np.int64) * 4.0**-waves.PLACES).max())

    assert response(honest) <= LARGEST_RESIDUAL
    assert response([honest[0], false]) > 1e6 * LARGEST_RESIDUAL


@pytest.mark.parametrize("products", ["dealer", "rlwe"])
@pytest.mark.parametrize("rounds", [False, True])
def test_a_plan_says_what_its_bounds_assume_of_a_dealer(products: Any, rounds: bool) -> None:
    tried: Any = build_gradients(2, products=products) if rounds else build_regression(2, products=products)
    told = plan("trial", tried, make_consortium(tried)).as_text()
    assert (ASSUMED in " ".join(told.split())) == (products == "dealer")


@pytest.mark.parametrize("products", ["dealer", "rlwe"])
def test_a_model_that_goes_to_everyone_is_not_said_to_be_kept(products: Any) -> None:
    for tried in (build_gradients(3, products=products), build_regression(3, products=products)):
        consortium = replace(make_consortium(tried), colluders=0)
        declared = tried.declare(consortium)
        kept = declared["model"].to == "coordinator"
        assert kept == (not isinstance(tried, type(build_gradients(2))))
        assert ("to itself" in declared.adversary) == (kept and products == "rlwe")


@pytest.mark.parametrize("twice", ["round/1", "matrices"])
def test_a_seed_that_is_dealt_twice_is_refused(twice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two values under one mask would show their difference to whoever reads both."""
    tried = build_gradients(2, rounds=2)
    inner = DealerRounds._seeds

    def dealt(self: DealerRounds, view: Any, name: str) -> dict[str, bytes]:
        found = inner(self, view, name)
        if name != "round/0":
            return found if name != twice or twice == "matrices" else inner(self, view, "round/0")
        if twice == "matrices":
            return {party: derive(seed, "matrix") for party, seed in inner(self, view, "matrices").items()}
        return found

    monkeypatch.setattr(DealerRounds, "_seeds", dealt)
    parties, _ = host_parties(tried, encode_parts(tried, make_people(60)), make_consortium(tried), NoNoise())
    with pytest.raises(ComityError, match="round_hand"):
        run(parties)
