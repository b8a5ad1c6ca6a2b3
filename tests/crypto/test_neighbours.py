"""The graph of neighbours: regular, symmetric, connected among the honest, with thresholds that nobody gets around."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import hypergeom

from comity.crypto.neighbours import COMPLETE, PRIVACY, choose, ring
from comity.entropy import Stream
from comity.errors import Refused


@pytest.mark.parametrize(
    ("parties", "colluders", "dropouts"), [(2, 1, 0), (3, 1, 0), (5, 1, 1), (40, 3, 12), (100, 1, 33)]
)
def test_small_consortia_are_complete_and_never_both_holds(parties, colluders, dropouts):
    chosen = choose(parties, colluders, dropouts)
    assert chosen.degree == parties - 1
    assert 2 * chosen.threshold > parties + colluders
    assert chosen.threshold <= parties - dropouts


@pytest.mark.parametrize(
    ("parties", "colluders", "dropouts"), [(101, 1, 10), (200, 1, 20), (1000, 10, 100), (1000, 1, 0), (1000, 100, 100)]
)
def test_rings_are_regular_symmetric_and_stand_their_colluders(parties, colluders, dropouts):
    chosen = choose(parties, colluders, dropouts)
    assert chosen.degree < parties - 1 and chosen.degree % 2 == 0
    names = [f"p{k}" for k in range(parties)]
    near = ring(names, chosen.degree, Stream.public("test", parties, colluders))
    for name, others in near.items():
        assert len(set(others)) == chosen.degree and name not in others
        assert all(name in near[other] for other in others)
    # Two lists would need 2 t consents of degree + 1 holders, of whom so many collude at most, except with 2^-40.
    most = 2 * chosen.threshold - (chosen.degree + 1)
    assert parties * hypergeom.sf(most - 1, parties - 1, colluders, chosen.degree) <= PRIVACY


def test_the_honest_survivors_stay_connected_and_a_thinner_ring_would_not_be():
    generator = np.random.default_rng(3)
    names = [f"p{k}" for k in range(400)]

    def connected(degree):
        near = ring(names, degree, Stream.public("test", int(generator.integers(2**31))))
        absent = set(generator.choice(names, 140, replace=False))
        present = [name for name in names if name not in absent]
        seen, waiting = {present[0]}, [present[0]]
        while waiting:
            for other in near[waiting.pop()]:
                if other not in seen and other not in absent:
                    seen.add(other)
                    waiting.append(other)
        return len(seen) == len(present)

    degree = choose(400, 70, 70).degree
    assert all(connected(degree) for _ in range(100))
    assert not all(connected(4) for _ in range(100))  # positive control


def test_graphs_differ_between_runs_and_are_the_same_for_everybody():
    names = [f"p{k}" for k in range(150)]
    one, two, again = (ring(names, 10, Stream.public("study", run)) for run in ("a", "b", "a"))
    assert one == again != two


def test_impossible_demands_are_refused_with_the_remedy():
    with pytest.raises(Refused, match="lower it to 2"):
        choose(7, 1, 3)
    with pytest.raises(Refused, match="lower one of them"):
        choose(COMPLETE + 50, 70, 75)
