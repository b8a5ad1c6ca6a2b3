"""What steps compute of every record from public values, kept for asks that bring the same values again.

A method whose rounds map all rows by one public map computes the mapped rows once. They are in memory only, and only
those of the last map: a coordinator that sends another map each time makes a site compute, and not store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.data.records import Records
from comity.federation.owner.rows import Arrays

if TYPE_CHECKING:
    from comity.data import LocalRecords

Floats = NDArray[np.float64]

MAX_BYTES = 1 << 28
"""Records whose features take more are mapped again in each round: mapped rows may take twice as much again."""


MAX_BUILT = 8
"""Files without a name that a host keeps open, of all its runs."""


@dataclass(frozen=True, eq=False)
class Preparation:
    """A map of features (..., n, d) to arrays (..., n, e), row by row. `values` are the public values that it depends
    on, and its name: the same values are the same map. `compute(features, keep)`: unless they are to be kept, the next
    call of the thread may overwrite the arrays. A step that computes faster without arrays which are not kept sets
    `only_kept`, and finds none then."""

    values: bytes
    compute: Callable[[Floats, bool], Arrays]
    only_kept: bool = False

    def once(self, features: Floats) -> Arrays:
        """What a step gets where nothing is kept."""
        return () if self.only_kept else self.compute(features, False)


@dataclass(frozen=True, eq=False)
class _Kept:
    records: LocalRecords
    values: bytes
    at_once: int | None
    rows: list[Arrays]
    """Of all records, in pieces of `at_once`."""


class PreparedRows:
    """The prepared rows of a host's records: at most one map's."""

    def __init__(self) -> None:
        self._kept: _Kept | None = None
        self._arrays: dict[str, tuple[bytes, LocalRecords, NDArray[Any]]] = {}
        self._built: dict[tuple[str, bytes], tuple[LocalRecords, Any]] = {}

    def clear(self) -> None:
        self._kept = None
        self._arrays = {}
        self._built = {}

    def built(self, name: str, values: bytes, records: LocalRecords, make: Callable[[], Any]) -> Any:
        """What `make` builds of all records and is not an array, such as a file without a name. A few are kept, for
        runs at the same time: building one takes passes over all records."""
        kept = self._built.get((name, values))
        if kept is not None and kept[0] is records:
            return kept[1]
        made = make()
        self._built[name, values] = records, made
        while len(self._built) > MAX_BUILT:
            self._built.pop(next(iter(self._built)), None)
        return made

    def drop(self, name: str, values: bytes) -> None:
        self._built.pop((name, values), None)

    def array(self, name: str, values: bytes, records: LocalRecords, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """What `make` computes of all records from public values; from memory where it has this name, these values
        and these records."""
        kept = self._arrays.get(name)
        if kept is not None and kept[0] == values and kept[1] is records:
            return kept[2]
        # The memory of the array before is free before more is taken.
        self._arrays.pop(name, None)
        kept = None
        made = make()
        made.setflags(write=False)
        if made.nbytes <= MAX_BYTES:
            self._arrays[name] = values, records, made
        return made

    def of(self, records: LocalRecords, preparation: Preparation, at_once: int | None) -> Pieces:
        """For one pass over the records, in order, in pieces of `at_once`."""
        # A local variable: the thread of another run may replace it meanwhile.
        kept = self._kept
        same = kept is not None and kept.records is records and kept.at_once == at_once
        if kept is not None and same and kept.values == preparation.values:
            return Pieces(preparation, at_once, kept.rows)
        # The memory of other rows is free before more is taken.
        self._kept = kept = None
        small = isinstance(records, Records) and records.features.nbytes <= MAX_BYTES
        return Pieces(preparation, at_once, made={} if small else None)

    def keep(self, records: LocalRecords, pieces: Pieces) -> None:
        """After a pass over all records."""
        if pieces.made is not None:
            rows = [pieces.made[place] for place in range(len(pieces.made))]
            self._kept = _Kept(records, pieces.preparation.values, pieces.at_once, rows)


@dataclass(frozen=True, eq=False)
class Pieces:
    preparation: Preparation
    at_once: int | None
    known: list[Arrays] | None = None
    made: dict[int, Arrays] | None = None

    def take(self, features: Floats, place: int | None = None) -> Arrays:
        """What is prepared of a piece of the records; several threads may take several pieces."""
        if self.known is not None and place is not None:
            return self.known[place]
        if self.made is None or place is None:
            return self.preparation.once(features)
        found = self.made[place] = self.preparation.compute(features, True)
        return found
