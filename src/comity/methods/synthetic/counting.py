"""What a schema's records are counted in: cells, and the tables of them that are laid out side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from comity.data import CellEncoding, Cells, Classes, Schema
from comity.errors import StudyError
from comity.methods.synthetic.layout import GAUSSIAN, LAPLACE, Layout
from comity.representation import short_repr

# Cells of a number, or a date, for which the schema says none, and those that are tried where there would be too many
# counts. Not tuned on data.
BINS = (8, 6, 5, 4, 3, 2)
# Cells of a target that is a number: as in the published method.
BUCKETS = 10
# Columns and counts that a release may have: a limit of size.
MOST_COLUMNS = 64
MOST_COUNTS = 1 << 17


@dataclass(frozen=True)
class Counting:
    """The cells of a schema and the pairs of columns that are counted: public, and the same for all who read it.

    `sparse`: only pairs with the target. `pure`: weighted for noise on the L1 norm.
    """

    __repr__ = short_repr

    schema: Schema
    bins: int = BINS[0]
    sparse: bool = False
    pure: bool = False

    @cached_property
    def encoding(self) -> CellEncoding:
        return CellEncoding(self.schema, cut=self.bins, buckets=BUCKETS)

    @property
    def cells(self) -> Cells:
        return self.encoding.cells

    @property
    def classified(self) -> bool:
        return isinstance(self.schema.target, Classes)

    @cached_property
    def layout(self) -> Layout:
        cells = self.cells
        place = {name: at for at, name in enumerate(cells.names)}
        follows = {
            place[column.name]: place[column.follows] for column in self.schema.columns if column.follows is not None
        }
        target = None if self.schema.target is None else len(cells.names) - 1
        return Layout(cells.sizes, target, follows, self.sparse, LAPLACE if self.pure else GAUSSIAN)

    @property
    def sparser(self) -> Counting:
        return replace(self, sparse=True)


def counting_of(schema: Schema, *, bins: int | None = None, pure: bool = False) -> Counting:
    """All pairs of columns, in as many cells as keep the number of counts within limits: fewer for numbers of which the
    schema says nothing, if need be. A study that asks for `bins` gets those or a refusal."""
    found = Counting(replace(schema, identifier=None), BINS[0] if bins is None else bins, pure=pure)
    columns = len(found.cells.names)
    if columns > MOST_COLUMNS:
        raise StudyError(
            f"synthetic counts pairs of at most {MOST_COLUMNS} columns, found {columns}; leave some out of the schema",
            key="columns",
        )
    for tried in BINS if bins is None else (bins,):
        found = replace(found, bins=tried)
        if found.layout.counts <= MOST_COUNTS:
            return found
    largest = max(zip(found.cells.sizes, found.cells.names))
    raise StudyError(
        f"synthetic releases at most {MOST_COUNTS:,} counts, and this schema has {found.layout.counts:,} with "
        f"{found.bins} cells to a number; the largest column is {largest[1]!r} with {largest[0]} cells. Declare fewer "
        "bins or edges, group categories under other = true, or say which column follows another",
        key=f"columns.{largest[1]}",
    )
