"""Who holds which columns, as one-hot cells; and how own tables and shares of products become one vector of counts.

A table of one column, or of two columns at one owner, is that owner's own. A table across owners is a product of their
one-hot cells, of which both hold a share. Every count of `Layout` comes from exactly one of the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import CellEncoding, Records, Schema, by_features
from comity.data.schemas.reading import canonical_id
from comity.errors import StudyError
from comity.methods.synthetic.counting import BUCKETS
from comity.methods.synthetic.layout import Block, Layout, as_cells

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

PLACES = 8
"""Binary places of a one-hot cell in the secure products. Shares of a product may add up to one unit beside it: that
is a whole count without any places, and 2^−16 of one with these. More would need a wider ring for many rows."""


@dataclass(frozen=True, eq=False)
class Holding:
    """`names` are all columns in the order of the layout, `sizes` their cells, `held` the columns of each party."""

    schema: Schema
    bins: int
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    held: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        # Every column, the target too, at exactly one party.
        by_features(self.schema, self.held)
        empty = [party for party, columns in self.held.items() if not columns]
        if len(self.held) < 2 or empty:
            raise StudyError(
                "synthetic over columns needs two parties or more that hold some, found "
                + (f"none at {empty[0]}" if empty else f"{len(self.held)}")
                + "; give every [parties.NAME] its columns",
                key=f"parties.{empty[0]}.columns" if empty else "parties",
            )

    def encoding_of(self, party: str) -> CellEncoding:
        """One party's part of a record, in the very cells of the whole."""
        if party not in self.held:
            raise StudyError(f"{party} holds no columns; add parties.{party}.columns", key=f"parties.{party}.columns")
        return self._encodings[party]

    @cached_property
    def _encodings(self) -> dict[str, CellEncoding]:
        return {
            party: CellEncoding(self.schema.restrict(columns), cut=self.bins, buckets=BUCKETS)
            for party, columns in self.held.items()
        }

    @cached_property
    def holders(self) -> tuple[str, ...]:
        """The party of each column of the layout."""
        return tuple(next(party for party, columns in self.held.items() if name in columns) for name in self.names)

    @cached_property
    def places(self) -> dict[str, tuple[int, ...]]:
        """Of each party's columns in the layout, in the order in which it encodes them."""
        return {party: tuple(map(self.names.index, one.cells.names)) for party, one in self._encodings.items()}

    @cached_property
    def widths(self) -> dict[str, int]:
        """One-hot cells of each party."""
        return {party: sum(self._sizes(party)) for party in self.held}

    def _sizes(self, party: str) -> tuple[int, ...]:
        return tuple(self.sizes[place] for place in self.places[party])

    @cached_property
    def _spans(self) -> dict[int, slice]:
        """Where the cells of each column of the layout lie among its holder's."""
        found: dict[int, slice] = {}
        for party, places in self.places.items():
            stops = np.cumsum(self._sizes(party)).tolist()
            found |= {place: slice(stop - self.sizes[place], stop) for place, stop in zip(places, stops)}
        return found

    # At a site.

    def one_hot(self, codes: NDArray[Any], party: str) -> Floats:
        """Rows (n, cells): a one in one cell of each column, whatever the records say; what is no cell is refused."""
        sizes = np.array(self._sizes(party), np.int64)
        cells = as_cells(codes, self._sizes(party))
        found = np.zeros((len(cells), self.widths[party]))
        np.put_along_axis(found, cells + (np.cumsum(sizes) - sizes), 1.0, axis=1)
        return found

    def share(self, layout: Layout, party: str, own: Floats, products: Mapping[tuple[str, str], Words]) -> Words:
        """A party's share of the weighted counts in product units: its own tables whole, its shares of tables across
        parties, zero elsewhere. `own` are the sums of products of its one-hot cells."""
        found = np.zeros(layout.counts, np.uint64)
        whole = own.astype(np.int64).view(np.uint64) << np.uint64(2 * PLACES)
        for block in layout.blocks:
            holders = [self.holders[place] for place in block.key]
            if party not in holders:
                continue
            spans = [self._spans[place] for place in block.key]
            if len(spans) == 1:
                table = np.diagonal(whole)[spans[0]]
            elif holders[0] == holders[1]:
                table = whole[spans[0], spans[1]]
            elif (holders[0], holders[1]) in products:
                table = products[holders[0], holders[1]][spans[0], spans[1]]
            else:
                table = products[holders[1], holders[0]][spans[1], spans[0]].T
            found[block.start : block.stop] = table.reshape(-1) * np.uint64(block.weight)
        return found

    def across(self, layout: Layout) -> Iterator[Block]:
        """The tables whose two columns different parties hold."""
        return (block for block in layout.blocks if len({self.holders[place] for place in block.key}) > 1)

    # Where all columns are in one place: a simulation.

    def joined(self, parties: Sequence[Records]) -> Records:
        """Whole records of those whom all parties hold, by identifier where there is one."""
        orders = _common([records.ids for records in parties])
        rows = min(map(len, parties)) if orders is None else len(orders[0])
        features, labels = np.empty((rows, len(self.names))), None
        for number, (party, records) in enumerate(zip(self.held, parties)):
            order = slice(None) if orders is None else orders[number]
            features[:, list(self.places[party])] = records.features[order]
            labels = labels if records.labels is None else records.labels[order]
        return Records(features, labels)


def _common(ids: Sequence[NDArray[np.object_] | None]) -> list[NDArray[np.int64]] | None:
    if any(one is None for one in ids):
        return None
    known = [{canonical_id(name): at for at, name in enumerate(one)} for one in ids if one is not None]
    shared = sorted(set.intersection(*map(set, known)))
    return [np.array([places[name] for name in shared], np.int64) for places in known]
