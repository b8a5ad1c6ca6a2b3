"""Synthetic records where owners hold different columns: the tables across owners are products that nobody sees.

What is released is the same vector of counts as by rows (`comity.methods.synthetic.protocol`), and everything after
it is the same. In the order of the method:

    align    (where the schema has an identifier) the common rows of all parties, in one order
    size     the number of common rows, public under replacement
    product  shares of all tables across parties stay at the sites
    counts   each party adds its own tables, its shares and its part of the noise; the secure sum opens the total
    tables   the noisy counts and the number of rows, from which anybody makes records
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING, Any

from comity.data import CellEncoding, Held, Records
from comity.errors import StudyError
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Counts, Opened
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Derived, Noised, Summed
from comity.federation.declare.release import Array, Count, Fields
from comity.federation.owner.site import Site
from comity.federation.protocol import step
from comity.methods.by_columns import rows
from comity.methods.by_columns.method import ByColumns
from comity.methods.by_columns.terms import Way, adversary, check_parties, protects
from comity.methods.synthetic.columns.holding import PLACES, Holding
from comity.methods.synthetic.columns.products import CellProducts
from comity.methods.synthetic.columns.sensitivity import sensitivity
from comity.methods.synthetic.counted import CountedData
from comity.methods.synthetic.counting import Counting
from comity.methods.synthetic.table_ranges import table_ranges
from comity.privacy.unit import Neighbours

if TYPE_CHECKING:
    from comity.federation.assessment import Assessment
    from comity.federation.own_score import OwnScore
    from comity.methods.synthetic.artefact import SyntheticDataset

# Room for the noise in product units, whatever the budget; what it does not hold is refused by the plan.
_ROOM = 1 << 46


@dataclass(frozen=True, kw_only=True, eq=False)
class SyntheticColumns(ByColumns, CountedData):
    """Weighted counts of every column and pair of columns, across owners by secure products, opened once with noise.

    Adversary    semi-honest: the coordinator with up to `colluders` parties. With `products="dealer"` a coordinator
                 that colludes with a party learns that party's peers' columns, because it deals; and the sensitivity
                 assumes that it deals correctly.
                 Not a party with a program of its own: a row that it multiplies beyond its bound reads its peers' row.
    Unit         a record: all columns of one row, at all parties, may be replaced. The number of rows is public, and
                 with an alignment so is who is among them to the owners: nothing could be added or removed unseen.
    Learned      everyone: the noisy counts and the number of rows (at `colluders` = 0: the coordinator alone, because a
                 party could subtract its own part of the noise).
    Sensitivity  `sensitivity.sensitivity`: √2·√Σ w_b² in L2 and 2·Σ w_b in L1 (pure) for blocks of weight w_b, and with
                 rlwe the carry of the products (proof.md).
    """

    columns: Mapping[str, tuple[str, ...]]
    products: Way = "rlwe"
    alignment: rows.Way = "none"
    most: rows.Most = 1 << 20

    def __post_init__(self) -> None:
        super().__post_init__()
        rows.check(self.name, self.alignment, self.schema)
        assert self.holding.widths

    # What the study fixes.

    @cached_property
    def holding(self) -> Holding:
        cells = self.cells.cells
        return Holding(self.schema, self.cells.bins, cells.names, cells.sizes, self.columns)

    def encoding_of(self, party: str) -> CellEncoding:
        return self.holding.encoding_of(party)

    @cached_property
    def product(self) -> CellProducts:
        heaviest = max(*self._gaussian.layout.weights, *self._laplace.layout.weights)
        return CellProducts(
            columns=self.holding.widths,
            places=PLACES,
            bound=1.0,
            method=self.products,
            most=self.most,
            noise=(len(self.columns) * heaviest * self.most << (2 * PLACES)) + _ROOM,
            holding=self.holding,
        )

    # What leaves.

    def declare(self, who: Consortium) -> Declaration:
        self._check(who)
        counts = self._counts(self.counting(who), who)
        tables = Release(
            name="tables",
            source=COORDINATOR,
            to=EVERYONE if who.colluders else COORDINATOR,
            protection=Derived("counts"),
            form=Fields({"counts": Array(counts.shape), "rows": Count(self.most)}),
        )
        return Declaration(
            (*self.declared_by_parts(who), counts, tables), adversary=adversary(self, who, "the dataset")
        )

    def _check(self, who: Consortium) -> None:
        """Refuse what the proof does not cover, before anything is reserved."""
        if who.neighbours is not Neighbours.REPLACE:
            raise StudyError(
                "synthetic over columns of different parties protects a record that may be replaced: matching rows "
                "tells how many records there are and whose they are, which add-remove would have to hide; found "
                f'privacy.neighbours = "{who.neighbours}". Set privacy.neighbours = "replace"',
                key="privacy.neighbours",
            )
        if not protects(self.alignment, who.unit):
            raise StudyError(
                f"synthetic over columns of different parties protects a record; found unit = {who.unit}, alignment = "
                f'{self.alignment}. Set privacy.unit = "record" ("person" only with an alignment)',
                key="privacy.unit",
            )
        check_parties(self.name, self.columns, who)

    def _counts(self, counting: Counting, who: Consortium) -> Release:
        layout, unit = counting.layout, self.product.unit
        moved = sensitivity(layout, self.holding, unit if self.products == "rlwe" else 0.0)
        return Release(
            name="counts",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Summed(self._noise(who)),
            form=Array((layout.counts,), "<i8"),
            bound=Opened(
                l2=moved.l2, l1=moved.l1, limit=float(max(layout.weights) * self.most), ring=self.product.bits
            ),
            grid=unit,
        )

    # What the coordinator does.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        shared = rows.agreed(self.name, parties, self.aligned, self.count, self.most)
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
        site.contribute(share=self.holding.share(layout, site.party, self.product.own(site), shares))

    # What a consumer works with.

    def present(self, released: Mapping[str, Any], who: Consortium) -> SyntheticDataset:
        tables = released["tables"]
        return self._dataset(tables["counts"], who.size, int(tables["rows"]), who)

    def assess(self, presented: SyntheticDataset, train: Sequence[Records] | None, test: Records) -> Assessment:
        from comity.methods.synthetic.fidelity import assess

        if train is None:
            return assess(presented, None, test)
        whole = self.holding.joined(train)
        holder = self.holding.holders[-1]
        own = [place for place in self.holding.places[holder] if place < len(self.holding.names) - 1]
        return assess(presented, whole, test, lambda task, tested: task.compare_columns(whole, own, tested))

    def score_own(self, presented: Any, records: Held, party: str) -> OwnScore | None:
        """Of the owner's own columns."""
        from comity.methods.synthetic.own_score import score_columns

        return score_columns(presented, records, self.holding.places[party])

    # What the plan says.

    def titled(self, who: Consortium) -> str:
        return self._titled(who, f", columns of different parties by {self.products}")

    def notes(self, who: Consortium) -> tuple[str, ...]:
        layout = self.counting(who).layout
        across = sum(1 for _ in self.holding.across(layout))
        replaced = self._sensitivity_ratio(who)
        shared = sqrt(who.size / who.honest_parts)
        return (
            *super().notes(who),
            f"{across} of {len(layout.blocks)} tables are across parties: products on shares, which nobody sees",
            f"noise is {self.wider(who):.2f} times as wide as that of the same tables by rows, of many parties whose "
            f"records may come and go: {replaced:.2f} for records that are replaced, {shared:.2f} for "
            f"{who.colluders} of {who.size} parties that may collude",
        )

    def wider(self, who: Consortium) -> float:
        """The deviation of a count over that by rows, where records come and go and so many parties share the noise
        that those which may collude do not matter."""
        counting = self.counting(who)
        counts = self._counts(counting, who)
        return counts.opened_deviation(who, who.size) / self._by_rows(counting, who).opened_deviation(who, 1)

    def _sensitivity_ratio(self, who: Consortium) -> float:
        counting = self.counting(who)
        return self._counts(counting, who).sensitivity / self._by_rows(counting, who).sensitivity

    def _by_rows(self, counting: Counting, who: Consortium) -> Release:
        layout = counting.layout
        return Release(
            name="counts",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Noised(self._noise(who)),
            form=Array((layout.counts,), "<i8"),
            bound=Counts(layout.weights, replaced=False, records=self.most),
        )
