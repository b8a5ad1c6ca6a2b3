"""Synthetic records where owners hold different columns: tables across owners are products that nobody sees.

The release is the same vector of counts as for whole records (`method`), and so is everything after it. In the order of
the method:

    align    (where the schema has an identifier) the common rows of all parties, in one order
    size     the number of common rows, public under replacement
    product  shares of all tables across parties; they stay at the sites
    counts   each party adds its own tables, its shares and its part of the noise; the secure sum opens the total
    tables   the noisy counts and the number of rows, from which anyone makes records

Derivations are in `columns_proof.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comity.data import CellEncoding, LocalRecords, Records, Schema, split_columns
from comity.data.schemas.reading import canonical_id
from comity.errors import StudyError
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Counts, OpenedValue
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Derived, Noised, Summed
from comity.federation.declare.release import Array, Count, Fields
from comity.federation.owner.site import Site
from comity.federation.protocol import step
from comity.methods.by_columns import AlignmentMethod, MaxRows, ProductMethod
from comity.methods.by_columns.products import ProductsWithOwnSums
from comity.methods.by_columns.protocol import ByColumns
from comity.methods.synthetic.counts import (
    BUCKETS,
    PAIRED_COLUMNS,
    Block,
    Counting,
    Layout,
    check_cells,
    table_ranges,
)
from comity.methods.synthetic.method import CountsProtocol
from comity.privacy.unit import Neighbours

if TYPE_CHECKING:
    from comity.federation.evaluation.assessment import Assessment
    from comity.federation.evaluation.own_score import OwnScore
    from comity.methods.synthetic.artefact import SyntheticDataset

# Who holds which columns, as one-hot cells.
#
# A table of one column, or of two columns at one owner, is that owner's own. A table across owners is a product of
# their one-hot cells, of which both hold a share. Every count of `Layout` comes from exactly one of the two.

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

PLACES = 8
"""Binary places of a one-hot cell in the secure products. Shares of a product may add up to one unit more or less: a
whole count without binary places, and 2^−16 of one with these. More would need a wider ring for many rows."""


@dataclass(frozen=True, eq=False)
class ColumnPartition:
    """Who holds which columns: the `names` of all columns in the order of the layout, the `sizes` of each in cells, and
    the `columns` of each party."""

    schema: Schema
    bins: int
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    columns: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        # Every column, including the target, must be at exactly one party.
        split_columns(self.schema, self.columns)
        empty = [party for party, columns in self.columns.items() if not columns]
        if len(self.columns) < 2 or empty:
            raise StudyError(
                "synthetic over columns needs at least two parties that hold some, found "
                + (f"none at {empty[0]}" if empty else f"{len(self.columns)}")
                + "; give every [parties.NAME] its columns",
                key=f"parties.{empty[0]}.columns" if empty else "parties",
            )

    def encoding_of(self, party: str) -> CellEncoding:
        """One party's part of a record, in the same cells as the whole."""
        if party not in self.columns:
            raise StudyError(f"{party} holds no columns; add parties.{party}.columns", key=f"parties.{party}.columns")
        return self._encodings[party]

    @cached_property
    def _encodings(self) -> dict[str, CellEncoding]:
        return {
            party: CellEncoding(
                self.schema.restrict(columns), cut=self.bins, buckets=BUCKETS, rules=self.schema.impossible
            )
            for party, columns in self.columns.items()
        }

    @cached_property
    def holders(self) -> tuple[str, ...]:
        """The party of each column of the layout."""
        return tuple(next(party for party, columns in self.columns.items() if name in columns) for name in self.names)

    @cached_property
    def places(self) -> dict[str, tuple[int, ...]]:
        """Indices of each party's columns in the layout, in the order in which it encodes them."""
        return {party: tuple(map(self.names.index, one.cells.names)) for party, one in self._encodings.items()}

    @cached_property
    def widths(self) -> dict[str, int]:
        """The number of one-hot cells of each party."""
        return {party: sum(self._sizes(party)) for party in self.columns}

    def _sizes(self, party: str) -> tuple[int, ...]:
        return tuple(self.sizes[place] for place in self.places[party])

    @cached_property
    def _spans(self) -> dict[int, slice]:
        """The slice of each column's cells among its holder's."""
        found: dict[int, slice] = {}
        for party, places in self.places.items():
            stops = np.cumsum(self._sizes(party)).tolist()
            found |= {place: slice(stop - self.sizes[place], stop) for place, stop in zip(places, stops)}
        return found

    # At a site.

    def one_hot(self, codes: NDArray[Any], party: str) -> Floats:
        """Rows (n, cells) with a one in exactly one cell of each column. Values that are no cell are refused."""
        sizes = np.array(self._sizes(party), np.int64)
        cells = check_cells(codes, self._sizes(party))
        found = np.zeros((len(cells), self.widths[party]))
        np.put_along_axis(found, cells + (np.cumsum(sizes) - sizes), 1.0, axis=1)
        return found

    def share(self, layout: Layout, party: str, own: Floats, products: Mapping[tuple[str, str], Words]) -> Words:
        """A party's share of the weighted counts, in product units: its own tables, its shares of tables across
        parties, and zero elsewhere. `own` are the sums of products of its one-hot cells."""
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
        """The tables whose two columns are at different parties."""
        return (block for block in layout.blocks if len({self.holders[place] for place in block.key}) > 1)

    # In a simulation, where all columns are in one place.

    def join_records(self, parties: Sequence[Records]) -> Records:
        """Whole records of the people whom all parties hold, matched by identifier if there is one."""
        orders = _match_ids([records.ids for records in parties])
        rows = min(map(len, parties)) if orders is None else len(orders[0])
        features, labels = np.empty((rows, len(self.names))), None
        for number, (party, records) in enumerate(zip(self.columns, parties)):
            order = slice(None) if orders is None else orders[number]
            features[:, list(self.places[party])] = records.features[order]
            labels = labels if records.labels is None else records.labels[order]
        return Records(features, labels)


def _match_ids(ids: Sequence[NDArray[np.object_] | None]) -> list[NDArray[np.int64]] | None:
    if any(one is None for one in ids):
        return None
    known = [{canonical_id(name): at for at, name in enumerate(one)} for one in ids if one is not None]
    shared = sorted(set.intersection(*map(set, known)))
    return [np.array([places[name] for name in shared], np.int64) for places in known]


@dataclass(frozen=True, kw_only=True, eq=False)
class CellProducts(ProductsWithOwnSums):
    """Secure products of one-hot rows, and each owner's own tables. The owner makes its rows one-hot."""

    partition: ColumnPartition

    def matrix(self, site: Site, rows: Records) -> Floats:
        return self.partition.one_hot(rows.features, site.party)

    def sum_own(self, matrix: Floats) -> Floats:
        """Whole numbers below 2^53, so blocks of rows add up exactly."""
        return np.asarray(matrix.T @ matrix, np.float64)

    def digest_input(self, matrix: Floats) -> NDArray[np.uint8]:
        return matrix.astype(np.uint8)


# How far one replaced record moves the counts that are opened from shares (columns_proof.md, 2).

# Exceeds the rounding of the few floating-point operations below.
_ROUND_UP = 1 + 1e-12


@dataclass(frozen=True)
class Sensitivity:
    l1: float
    l2: float


def sensitivity(layout: Layout, partition: ColumnPartition, carry: float) -> Sensitivity:
    """Sensitivity of the weighted counts to one replaced record.

    `carry` bounds the distance of a count across parties from the exact table, in either direction; it is 0 with a
    dealer. The count may lie above for one neighbour and below for the other, so it counts twice.
    """
    moved = Counts(layout.weights, replaced=True, records=1)
    across = list(partition.across(layout))
    l1 = sum(2 * carry * block.weight * block.cells for block in across)
    l2 = 2 * carry * sqrt(sum(block.weight**2 * block.cells for block in across))
    # Without a carry these are whole numbers or their roots, which need no rounding up.
    return (
        Sensitivity((moved.l1 + l1) * _ROUND_UP, (moved.l2 + l2) * _ROUND_UP)
        if carry
        else Sensitivity(moved.l1, moved.l2)
    )


# Room for the noise in product units, for any budget; the plan refuses noise that does not fit.
_NOISE_ROOM = 1 << 46


@dataclass(frozen=True, kw_only=True, eq=False)
class SyntheticColumnsProtocol(ByColumns, CountsProtocol):
    """Weighted counts of every column and pair of columns, by secure products across owners, opened once with noise.

    Adversary    semi-honest: the coordinator with up to `colluders` parties. With `products="dealer"` the coordinator
                 has all columns masked: if it colludes with a party, which knows the masks, it learns the columns of
                 that party's peers; and the sensitivity assumes that it deals correctly.
                 Not a party that deviates from the program: it can scale a row beyond its bound to read its peers' row.
    Unit         a record: all columns of one row, at all parties, may be replaced. The number of rows is public, and
                 with an alignment the owners know whose rows they are: adding or removing one could not be hidden.
    Learned      everyone: the noisy counts and the number of rows (at `colluders` = 0: the coordinator alone, because a
                 party could subtract its own part of the noise).
    Sensitivity  √2·√Σ w_b² in L2 and 2·Σ w_b in L1 (pure) for blocks of weight w_b, plus the carry of the products with
                 rlwe (`sensitivity`, columns_proof.md).
    """

    version: ClassVar[int] = 3
    # Products are computed of all pairs, counted or not.
    max_columns: ClassVar[int] = PAIRED_COLUMNS

    columns: Mapping[str, tuple[str, ...]]
    products: ProductMethod
    alignment: AlignmentMethod
    max_rows: MaxRows

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.partition.widths

    # What the study fixes.

    @cached_property
    def partition(self) -> ColumnPartition:
        cells = self.cells.cells
        return ColumnPartition(self.schema, self.cells.bins, cells.names, cells.sizes, self.columns)

    def encoding_of(self, party: str) -> CellEncoding:
        return self.partition.encoding_of(party)

    @cached_property
    def product(self) -> CellProducts:
        heaviest = max(*self._gaussian.layout.weights, *self._laplace.layout.weights)
        return CellProducts(
            columns=self.partition.widths,
            places=PLACES,
            bound=1.0,
            method=self.products,
            max_rows=self.max_rows,
            noise=(len(self.columns) * heaviest * self.max_rows << (2 * PLACES)) + _NOISE_ROOM,
            partition=self.partition,
        )

    # What leaves.

    def declare(self, consortium: Consortium) -> Declaration:
        self._check(consortium)
        counts = self._declare_counts(self.counting(consortium), consortium)
        tables = Release(
            name="tables",
            source=COORDINATOR,
            to=EVERYONE if consortium.colluders else COORDINATOR,
            protection=Derived("counts"),
            form=Fields({"counts": Array(counts.shape), "rows": Count(self.max_rows)}),
        )
        return Declaration(
            (*self.declared_by_parts(consortium), counts, tables),
            adversary=self.describe_adversary(consortium, "the dataset"),
        )

    def _check(self, consortium: Consortium) -> None:
        """Refuse terms that the proof does not cover, before anything is reserved."""
        if consortium.neighbours is not Neighbours.REPLACE:
            raise StudyError(
                "synthetic over columns of different parties protects a record that may be replaced: matching rows "
                "reveals how many records there are and whose they are, which add-remove would have to hide; found "
                f'privacy.neighbours = "{consortium.neighbours}". Set privacy.neighbours = "replace"',
                key="privacy.neighbours",
            )
        if not self.protects(consortium.unit):
            raise StudyError(
                f"synthetic over columns of different parties protects a record; found unit = {consortium.unit}, "
                f'alignment = {self.alignment}. Set privacy.unit = "record" ("person" only with an alignment)',
                key="privacy.unit",
            )
        self.check_parties(consortium)

    def _declare_counts(self, counting: Counting, consortium: Consortium) -> Release:
        layout, unit = counting.layout, self.product.unit
        moved = sensitivity(layout, self.partition, unit if self.products == "rlwe" else 0.0)
        return Release(
            name="counts",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Summed(self._noise(consortium)),
            form=Array((layout.counts,), "<i8"),
            bound=OpenedValue(
                l2=moved.l2, l1=moved.l1, limit=float(max(layout.weights) * self.max_rows), ring=self.product.bits
            ),
            grid=unit,
        )

    # What the coordinator does.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        shared = self.agree_on_rows(parties)
        self.product.coordinate_products(parties, shared)
        total = parties.sum(self.contribute)
        layout = self.counting(parties.consortium).layout
        parties.require("counts", total.parties, table_ranges(layout, total.value, exactly=shared))
        return {"tables": {"counts": total.value, "rows": shared}}

    # What a site does.

    @step(sends="counts")
    def contribute(self, site: Site) -> None:
        shares = self.product.shares(site, site.dims["rows"])
        layout = self.counting(site.consortium).layout
        site.contribute(share=self.partition.share(layout, site.party, self.product.own_sums(site), shares))

    # What a consumer works with.

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> SyntheticDataset:
        tables = released["tables"]
        return self._make_dataset(tables["counts"], consortium.size, int(tables["rows"]), consortium)

    def assess(self, presented: SyntheticDataset, train: Sequence[Records] | None, test: Records) -> Assessment:
        from comity.methods.synthetic.fidelity import assess

        if train is None:
            return assess(presented, None, test)
        whole = self.partition.join_records(train)
        holder = self.partition.holders[-1]
        own = [place for place in self.partition.places[holder] if place < len(self.partition.names) - 1]
        return assess(presented, whole, test, lambda task, tested: task.compare_columns(whole, own, tested))

    def score_own(self, presented: Any, records: LocalRecords, party: str) -> OwnScore | None:
        """Score the owner's own columns."""
        from comity.methods.synthetic.fidelity import score_columns

        return score_columns(presented, records, self.partition.places[party])

    # What the plan says.

    def title_in(self, consortium: Consortium) -> str:
        return self._make_title(consortium, f", columns of different parties by {self.products}")

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        layout = self.counting(consortium).layout
        across = sum(1 for _ in self.partition.across(layout))
        counts, by_rows = self._declare_counts_both_ways(consortium)
        replaced = counts.sensitivity / by_rows.sensitivity
        shared = sqrt(consortium.size / consortium.honest_parts)
        return (
            *super().notes(consortium),
            f"{across} of {len(layout.blocks)} tables are across parties: secure products that nobody sees",
            f"noise is {self.relative_noise(consortium):.2f} times as wide as for whole records under add-remove at "
            f"many parties: {replaced:.2f} because records are replaced, times {shared:.2f} because "
            f"{consortium.colluders} of {consortium.size} parties may collude",
        )

    def relative_noise(self, consortium: Consortium) -> float:
        """The deviation of a count over that of whole records under add-remove, shared by so many parties that
        colluders do not matter."""
        counts, by_rows = self._declare_counts_both_ways(consortium)
        return counts.opened_deviation(consortium, consortium.size) / by_rows.opened_deviation(consortium, 1)

    def _declare_counts_both_ways(self, consortium: Consortium) -> tuple[Release, Release]:
        """The release of counts, and what it would be for whole records under add-remove."""
        counting = self.counting(consortium)
        counts = self._declare_counts(counting, consortium)
        by_rows = Counts(counting.layout.weights, replaced=False, records=self.max_rows)
        return counts, replace(counts, protection=Noised(self._noise(consortium)), bound=by_rows, grid=None)
