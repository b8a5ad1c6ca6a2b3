"""Tables of counts on neighbouring sets of records: what is measured stays within the claim, and an audit of the same
draws catches a table that the sensitivity left out, and a record that is replaced where it was taken for one removed.

What is drawn are the parts of the honest parties around tables that pass through the bound and the grid of a declared
release. Bounds are taken at a confidence of 1 − 1e-7 and draws are seeded.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from comity.audit import epsilon_lower_bound, gdp_lower_bound
from comity.data import Categorical, Cells, Schema
from comity.federation.declare.bounds import Counts
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Release
from comity.federation.declare.protection import Summed
from comity.federation.declare.release import Array
from comity.privacy.loss import Approx, Loss, Pure
from comity.privacy.mechanisms import Gaussian, Laplace
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from comity.privacy.unit import Neighbours, Unit

SURE, DELTA, COUNT = 1 - 1e-7, 1e-6, 60_000
CELLS = Cells(Schema(tuple(Categorical(name, ("0", "1")) for name in "abc")))
SIZE = 4 * len(CELLS.pairs)


def tables(records: list[str]) -> np.ndarray:
    """Every two-way table of the records, as one vector."""
    places = CELLS.locate(pd.DataFrame([list(record) for record in records], columns=list("abc")))
    found = np.zeros((len(CELLS.pairs), 2, 2))
    for table, (first, second) in zip(found, CELLS.pairs):
        np.add.at(table, (places[:, first], places[:, second]), 1)
    return found.reshape(-1)


NEIGHBOURS = {
    Neighbours.ADD_REMOVE: (["010", "101", "000"], ["010", "101"]),
    Neighbours.REPLACE: (["010", "101", "000"], ["010", "101", "111"]),
}


def measured(loss: Loss, neighbours: Neighbours, *, left_out: int = 0, taken_for: Neighbours | None = None) -> float:
    """A lower bound of ε. Twins declare `left_out` tables too few, or another relation than the records have."""
    consortium = Consortium(parties=("ash", "birch", "cedar"), loss=loss, unit=Unit.RECORD, neighbours=neighbours)
    declared = taken_for or neighbours
    bound = Counts((1,) * (len(CELLS.pairs) - left_out), declared is Neighbours.REPLACE, 50)
    noise = Laplace(loss) if isinstance(loss, Pure) else Gaussian(loss)
    release = Release(
        name="tables",
        source=EVERY_PARTY,
        to=COORDINATOR,
        protection=Summed(noise),
        form=Array((SIZE,), "<i8"),
        bound=bound,
    )
    scale, honest = release.scale(consortium), consortium.honest_parts
    first, second = (
        np.rint(bound.enforce(tables(records), (SIZE,)) / scale.grid) for records in NEIGHBOURS[neighbours]
    )
    # Counts lie on the grid: nothing was rounded.
    assert (
        (first - second) * scale.grid == tables(NEIGHBOURS[neighbours][0]) - tables(NEIGHBOURS[neighbours][1])
    ).all()
    scores = []
    for seed, centre in enumerate((first, second)):
        source = SeededNoise(seed + 7)
        noisy = centre + sum(
            noise.draw(source, scale, (COUNT, SIZE), permit=simulated_permit("tables"), part=True)
            for _ in range(honest)
        )
        if isinstance(loss, Pure):
            scores.append((np.abs(noisy - second) - np.abs(noisy - first)).sum(axis=1))
        else:
            scores.append(noisy @ (first - second))
    if isinstance(loss, Pure):
        return epsilon_lower_bound(*scores, confidence=SURE)
    return gdp_lower_bound(*scores, delta=DELTA, confidence=SURE)


LOSSES = [Pure(1), Approx(1, DELTA)]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("neighbours", list(NEIGHBOURS))
def test_counts_of_neighbours_hold_the_claim(loss: Loss, neighbours: Neighbours) -> None:
    assert 0.4 <= measured(loss, neighbours) <= 1


@pytest.mark.parametrize("loss", LOSSES)
def test_tables_that_the_sensitivity_left_out_are_caught(loss: Loss) -> None:
    assert measured(loss, Neighbours.ADD_REMOVE, left_out=2) > 1


@pytest.mark.parametrize("loss", LOSSES)
def test_a_replaced_record_taken_for_a_removed_one_is_caught(loss: Loss) -> None:
    assert measured(loss, Neighbours.REPLACE, taken_for=Neighbours.ADD_REMOVE) > 1
