"""Against whom a bound holds where the coordinator deals: what a site can check of dealt words, and what it can't."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from comity.errors import ComityError
from comity.federation.coordinator.lifecycle import run
from comity.federation.coordinator.parties import Parties
from comity.federation.plan import plan
from comity.methods.vertical.dealer_rounds import DealerRounds
from comity.methods.vertical.descent import Descent
from comity.methods.vertical.rounds import LARGEST_RESIDUAL, gradient_sensitivity
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


def test_false_words_of_a_dealer_exceed_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack that no site can see: shares are uniform words to it, whatever they add up to. Masks are multiplied
    with the parts of the masked responses: 2^30 more in one row is that row's instruments, less what the coordinator
    has."""
    split = DealerRounds._split
    opened: list[Any] = []

    def rounds(wrong: int) -> Any:
        def splitting(self: DealerRounds, view: Any, label: int, words: Any, sums: Any) -> Any:
            words = words.copy()
            words[0] += np.uint64(wrong)
            return split(self, view, label, words, sums)

        monkeypatch.setattr(DealerRounds, "_split", splitting)
        tried = build_gradients(2, rounds=1)
        parties, _ = host_parties(tried, encode_parts(tried, make_people(60)), make_consortium(tried), NoNoise())
        step = Descent.step

        def stepping(self: Descent, values: Any) -> Any:
            opened.append(values)
            return step(self, values)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Descent, "step", stepping)
            patch.setattr("comity.federation.coordinator.parties.require_plausible", lambda *args: None)
            run(parties)
        return opened[-1]

    assert np.abs(rounds(0)).max() <= 60 * LARGEST_RESIDUAL
    assert np.abs(rounds(1 << 30)).max() > 1000 * gradient_sensitivity()


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


@pytest.mark.parametrize("twice", ["query", "part"])
def test_a_seed_that_is_given_twice_is_refused(twice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two values under one mask would show their difference to whoever reads both."""
    tried = build_gradients(2, rounds=2)
    inner = DealerRounds._seeds

    def given(self: DealerRounds, view: Any, name: str, *more: str) -> dict[str, bytes]:
        return inner(self, view, f"{twice}/0" if name == f"{twice}/1" else name, *more)

    monkeypatch.setattr(DealerRounds, "_seeds", given)
    parties, _ = host_parties(tried, encode_parts(tried, make_people(60)), make_consortium(tried), NoNoise())
    with pytest.raises(ComityError, match=twice):
        run(parties)


def test_masks_of_a_site_that_changed_its_records_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the coordinator has masked and what a site multiplies would differ by an exact sum of instruments."""
    tried = build_gradients(2, rounds=2)
    instruments, calls = DealerRounds._instruments, [0]

    def changing(self: DealerRounds, site: Any, part: slice) -> Any:
        calls[0] += 1
        found = instruments(self, site, part).copy()
        found[0, 0] += calls[0] > 2
        return found

    monkeypatch.setattr(DealerRounds, "_instruments", changing)
    parties, _ = host_parties(tried, encode_parts(tried, make_people(60)), make_consortium(tried), NoNoise())
    with pytest.raises(ComityError, match="stopped"):
        run(parties)


def test_a_stretch_is_settled_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = build_gradients(2, rounds=1)
    monkeypatch.setattr("comity.methods.vertical.dealer_rounds._LARGEST_STRETCH", 20)
    ask = Parties.ask

    def asking(self: Parties, step: Any, **values: Any) -> Any:
        left_out = step == "settle" and values.get("label") == 0
        return {} if left_out else ask(self, step, **values)

    monkeypatch.setattr(Parties, "ask", asking)
    parties, _ = host_parties(tried, encode_parts(tried, make_people(60)), make_consortium(tried), NoNoise())
    with pytest.raises(ComityError, match=r"rounds\.settle\[1\]"):
        run(parties)
