"""Holders: drawn by each party itself, with thresholds and quorums that nobody gets around."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations
from math import comb, exp, log
from typing import Any

import numpy as np
import pytest
from scipy.stats import hypergeom

from comity.crypto.share_holders import (
    COMPLETION,
    MAX_COMPLETE,
    PRIVACY,
    choose_degree,
    closed_set_bound,
    draw_holders,
    likely_maximum,
)
from comity.entropy import derive
from comity.errors import Refused

SEVERAL = [(41, 1, 0), (60, 1, 6), (80, 8, 8), (100, 1, 0)]
LARGE = [
    (101, 1, 10),
    (150, 1, 0),
    (200, 10, 20),
    (500, 0, 50),
    (1000, 10, 100),
    (1000, 1, 0),
    (1000, 100, 100),
]


def coins(*label: Any) -> bytes:
    return derive(b"test coins", *label)


@pytest.mark.parametrize(
    ("parties", "colluders", "dropouts"), [(2, 1, 0), (3, 1, 0), (5, 1, 1), (40, 3, 12), (100, 1, 33)]
)
def test_small_consortia_are_complete_and_never_both_holds(parties: int, colluders: int, dropouts: int) -> None:
    chosen = choose_degree(parties, colluders, dropouts)
    assert chosen.degree == parties - 1
    # Two quorums, or shares of both secrets, would need more holders than there are, even if colluders serve twice.
    assert 2 * chosen.threshold > parties + colluders
    assert chosen.threshold == chosen.quorum <= parties - dropouts


@pytest.mark.parametrize(("parties", "colluders", "dropouts"), [*SEVERAL, *LARGE])
def test_very_many_parties_have_few_holders_that_stand_their_colluders_and_drop_outs(
    parties: Any, colluders: Any, dropouts: Any
) -> None:
    chosen = choose_degree(parties, colluders, dropouts)
    assert chosen.degree < parties - 1
    # The most colluders for which shares of both secrets can't be collected, and how often there are more.
    most = 2 * chosen.threshold - (chosen.degree + 1) - 1
    assert parties * hypergeom.sf(most, parties - 1, colluders, chosen.degree) <= PRIVACY
    lost = chosen.degree + 1 - chosen.quorum
    assert parties * hypergeom.sf(lost, parties - 1, dropouts, chosen.degree) <= COMPLETION
    assert chosen.threshold <= chosen.quorum
    counted = likely_maximum(parties - 1, colluders, chosen.degree, PRIVACY / parties)
    assert counted <= most
    assert closed_set_bound(parties, chosen.degree, chosen.degree - lost - counted) <= log(PRIVACY)


@pytest.mark.parametrize("chance", [0.3, 1e-3, PRIVACY / 1000])
@pytest.mark.parametrize(("population", "marked", "drawn"), [(999, 100, 60), (50, 1, 10), (50, 0, 10), (20, 30, 10)])
def test_the_most_marked_ones_among_those_drawn_is_an_exact_tail(
    population: int, marked: int, drawn: int, chance: Any
) -> None:
    found, marked = likely_maximum(population, marked, drawn, chance), min(marked, population)

    def exceeds(count: Any) -> Any:
        ways = sum(
            Fraction(comb(marked, k) * comb(population - marked, drawn - k)) for k in range(count + 1, drawn + 1)
        )
        return ways / comb(population, drawn)

    assert exceeds(found) <= chance * (1 + 1e-9)
    assert found == 0 or exceeds(found - 1) > chance * (1 - 1e-9)


def test_the_bound_on_closed_sets_holds_for_every_graph_of_a_small_consortium() -> None:
    """Six parties, two holders each, drawn 4,000 times: how often a set of two or three has all its holders inside."""
    names = [f"p{k}" for k in range(6)]
    found = 0
    for trial in range(4000):
        near = {name: set(draw_holders(names, name, 2, coins("closed", trial, name))) for name in names}
        sets = (set(some) for size in (2, 3) for some in combinations(names, size))
        found += any(all(near[name] <= some for name in some) for some in sets)
    bound = exp(closed_set_bound(6, 2, 2))
    # C(6, 3) sets of three, each closed with probability (1 / C(5, 2))³; sets of two can't hold two others.
    assert bound == pytest.approx(20 / 1000)
    assert found / 4000 <= bound + 4 * np.sqrt(bound / 4000)
    assert found / 4000 >= bound / 2  # rare events nearly add up: the bound is not empty


def test_ranges_of_sizes_bound_what_single_sizes_add_up_to(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = closed_set_bound(3000, 60, 45)
    monkeypatch.setattr("comity.crypto.share_holders._MAX_SINGLE_SIZE", 600)
    ranged = closed_set_bound(3000, 60, 45)
    assert exact <= ranged + 1e-9 and ranged < log(PRIVACY)
    monkeypatch.setattr("comity.crypto.share_holders._MAX_SINGLE_SIZE", 502)
    assert (
        closed_set_bound(3000, 20, 6) >= closed_set_bound(1000, 20, 6) > 0
    )  # sets that are there are not lost in ranges


def test_fewer_holders_would_leave_closed_sets() -> None:
    """Positive control: with the degree that colluders and drop-outs alone ask for, sets could be cut off."""
    chosen = choose_degree(500, 0, 50)
    lost = chosen.degree + 1 - chosen.quorum
    assert closed_set_bound(500, chosen.degree, chosen.degree - lost) <= log(PRIVACY)
    assert closed_set_bound(500, chosen.degree, (chosen.degree - lost) // 2) > log(PRIVACY)
    assert closed_set_bound(500, 4, 1) > 0


def test_holders_are_distinct_others_in_order_and_uniform() -> None:
    names = [f"p{k:02}" for k in range(12)]
    counts: Counter[Any] = Counter()
    for trial in range(3000):
        holders = draw_holders(names, "p03", 4, coins("uniform", trial))
        assert len(set(holders)) == 4 and "p03" not in holders and list(holders) == sorted(holders)
        counts.update(holders)
    expected = 3000 * 4 / 11
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 35  # 10 degrees of freedom: p < 1e-4
    assert draw_holders(names, "p03", 11, coins(1)) == tuple(name for name in names if name != "p03")


def test_impossible_demands_are_refused_with_the_remedy() -> None:
    with pytest.raises(Refused, match="lower it to 2"):
        choose_degree(7, 1, 3)
    with pytest.raises(Refused, match="lower one of them"):
        choose_degree(MAX_COMPLETE + 50, 70, 75)
    with pytest.raises(Refused, match=r"privacy\.dropouts to 19 for instance"):
        choose_degree(60, 20, 20)
    assert choose_degree(60, 20, 19).degree == 59


def test_where_most_others_would_be_holders_all_of_them_are() -> None:
    assert choose_degree(1000, 300, 100).degree == 999
    assert choose_degree(MAX_COMPLETE, 1, 0).degree == MAX_COMPLETE - 1
    assert choose_degree(MAX_COMPLETE + 1, 1, 0).degree < MAX_COMPLETE // 2
