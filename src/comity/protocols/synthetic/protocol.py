"""Synthetic records from two-way counts, the default: one secure sum, paid once, and rows that anybody makes of it.

After F. Fioretto, P. Van Hentenryck, Privacy-Preserving Federated Data Sharing, AAMAS 2019, where every agent releases
a dataset of its own. Here the agents' records are counted together: every count carries one noise instead of one for
each agent, and one dataset comes of it. Derivations are in `proof.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np

from comity.data import CellEncoding, Records, Schema
from comity.errors import StudyError
from comity.federation.bounds import Counts
from comity.federation.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declaration import Declaration, Release
from comity.federation.forms import Array, Count, Each, Fields
from comity.federation.parties import Parties
from comity.federation.protection import Derived, Noised, Summed
from comity.federation.protocol import Protocol, step
from comity.federation.site import Site
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import Pure
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.unit import Neighbours, Unit
from comity.protocols.synthetic.counting import BINS, Counting, counting_of
from comity.protocols.synthetic.expected import expected_errors
from comity.protocols.synthetic.rule import MOST_NOISE, carries_pairs, noise_of_pairs

if TYPE_CHECKING:
    from comity.artefacts.artefact import Artefact
    from comity.federation.assessment import Assessment
    from comity.protocols.synthetic.artefact import SyntheticDataset

Model = Literal["auto", "mixture", "naive-bayes"]
Pooling = Literal["sum", "none"]

# Records that one party may count; cells are cut beyond. It decides how wide the integers are, and moves no noise: a
# limit of size.
MOST_RECORDS = 1 << 31
# Of so many parties that release alone each has a dataset of its own beside the common one: a limit of size.
DATASETS = 16


@dataclass(frozen=True, kw_only=True, eq=False)
class SyntheticData(Protocol):
    """Weighted counts of every column and pair of columns, summed securely with shared noise; rows made of them.

    Adversary    an honest-but-curious coordinator with up to `colluders` parties, and whoever sees counts or rows.
    Unit         a record, added or removed (how many there are is then part of what is noised), or replaced.
    Learned      everyone: the noisy counts over all parties, and so every row that is made of them.
    Sensitivity  a record adds w_b to one cell of each block b: √Σ w_b² in L2, Σ w_b in L1 (pure); replaced √2 and 2
                 times that (proof.md, 1). Cells, blocks and weights come from the schema, so that they tell nothing.

    `rows` is the declared number of all records: a round figure for the rule that chooses the model, and how many there
    are where records are replaced. With `pooling` = "none" each party noises its own counts, and holds against all
    others by itself.
    """

    name: ClassVar[str] = "synthetic"

    schema: Schema
    model: Model = "auto"
    rows: int | None = None
    bins: int | None = None
    pooling: Pooling = "sum"

    def __post_init__(self) -> None:
        for key, known in (("model", get_args(Model)), ("pooling", get_args(Pooling))):
            if getattr(self, key) not in known:
                raise StudyError(
                    f"synthetic.{key} must be one of {', '.join(known)}, found {getattr(self, key)!r}",
                    key=f"synthetic.{key}",
                )
        if self.rows is not None and self.rows < 1:
            raise StudyError(f"synthetic.rows must be at least 1, found {self.rows}", key="synthetic.rows")
        if self.bins is not None and not 2 <= self.bins <= 256:
            raise StudyError(f"synthetic.bins must lie between 2 and 256, found {self.bins}", key="synthetic.bins")
        assert self._gaussian.layout.counts

    # What the study fixes.

    @cached_property
    def _gaussian(self) -> Counting:
        return counting_of(self.schema, bins=self.bins)

    @cached_property
    def _laplace(self) -> Counting:
        return counting_of(self.schema, bins=self.bins, pure=True)

    @property
    def encoding(self) -> CellEncoding:
        """Records as cells, which do not depend on the noise."""
        return self._gaussian.encoding

    @property
    def cells(self) -> Counting:
        """The cells of records, whatever the noise is."""
        return self._gaussian

    def whole(self, who: Consortium) -> Counting:
        """With all pairs."""
        return self._laplace if isinstance(who.loss, Pure) else self._gaussian

    def counting(self, who: Consortium) -> Counting:
        """What is counted: all pairs, or those with the target where naive Bayes is chosen."""
        whole = self.whole(who)
        return whole.sparser if self.chosen(who) == "naive-bayes" else whole

    def chosen(self, who: Consortium) -> str:
        """The model, by the study or by a rule from public figures."""
        if self.model != "auto":
            return self.model
        whole = self.whole(who)
        deviation = self._deviation(self._counts(whole, who), who, who.size)
        return "mixture" if carries_pairs(whole.layout, deviation, self.rows) else "naive-bayes"

    def titled(self, who: Consortium) -> str:
        noise = "Laplace" if isinstance(who.loss, Pure) else "Gaussian"
        return f"synthetic ({self.chosen(who)}, {noise}{', each party alone' if self.pooling == 'none' else ''})"

    # What leaves.

    def declare(self, who: Consortium) -> Declaration:
        if who.unit is not Unit.RECORD:
            raise StudyError(
                f'synthetic protects a record; found privacy.unit = "{who.unit}". Set privacy.unit = "record"',
                key="privacy.unit",
            )
        counts = self._counts(self.counting(who), who)
        one = Array(counts.shape)
        tables = Release(
            name="tables",
            source=COORDINATOR,
            to=EVERYONE,
            protection=Derived("counts"),
            form=Each(one) if self.pooling == "none" else Fields({"counts": one, "parties": Count(who.size)}),
        )
        alone = "whoever receives what a party released, coordinator and other parties included"
        together = f"an honest-but-curious coordinator with up to {who.colluders} of {who.size} parties"
        return Declaration((counts, tables), adversary=alone if self.pooling == "none" else together)

    def _counts(self, counting: Counting, who: Consortium) -> Release:
        noise = Laplace(who.loss) if isinstance(who.loss, Pure) else Gaussian(gaussian_budget(who.loss))
        return Release(
            name="counts",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Noised(noise) if self.pooling == "none" else Summed(noise),
            form=Array((counting.layout.counts,), "<i8"),
            bound=Counts(counting.layout.weights, who.neighbours is Neighbours.REPLACE, MOST_RECORDS),
        )

    @staticmethod
    def _deviation(counts: Release, who: Consortium, parties: int) -> float:
        """Of the noise in a weighted count that so many parties are in. Parts beyond those that the noise was laid out
        for are noise on top."""
        scale = counts.scale(who)
        return counts.deviation(scale) * scale.grid * sqrt(parties / counts.parts(who))

    @property
    def stackable(self) -> bool:
        return self.pooling == "sum"

    def streams(self, who: Consortium) -> bool:
        return True

    # What the coordinator does.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        if self.pooling == "sum":
            total = parties.sum(self.count)
            return {"tables": {"counts": total.value, "parties": total.parties}}
        who, release = parties.consortium, parties.declaration["counts"]
        grid = release.spacing(who)
        got = parties.ask(self.count, need=release.least(who))
        return {"tables": {party: np.asarray(values["counts"] * grid, np.float64) for party, values in got.items()}}

    # What a site does.

    @step(sends="counts", stacked=True)
    def count(self, site: Site) -> None:
        layout = self.counting(site.consortium).layout
        site.contribute(site.total(lambda rows: layout.count(rows.features, rows.present)))

    # What a consumer works with.

    def present(self, released: Mapping[str, Any], who: Consortium) -> SyntheticDataset:
        tables = released["tables"]
        if self.pooling == "none":
            return self._made(sum(tables.values()), len(tables), who)
        return self._made(tables["counts"], tables["parties"], who)

    def beside(self, released: Mapping[str, Any], who: Consortium, *, study: str, run: str) -> Mapping[str, Artefact]:
        """Of parties that release alone, each one's own dataset."""
        tables = released["tables"] if self.pooling == "none" else {}
        if not 1 < len(tables) <= DATASETS:
            return {}
        return {f"data-{place}": self._made(tables[party], 1, who) for place, party in self._numbered(tables, who)}

    @staticmethod
    def _numbered(tables: Mapping[str, Any], who: Consortium) -> Sequence[tuple[int, str]]:
        return [(place, party) for place, party in enumerate(who.parties, start=1) if party in tables]

    def _made(self, values: Any, parties: int, who: Consortium) -> SyntheticDataset:
        from comity.protocols.synthetic.artefact import SyntheticDataset
        from comity.protocols.synthetic.counts import NoisyCounts

        counting = self.counting(who)
        replaced = who.neighbours is Neighbours.REPLACE
        # The declared number is that of all records: one party's own is in its counts alone.
        total = self.rows if replaced and parties == who.size else None
        deviation = self._deviation(self._counts(counting, who), who, parties)
        values = np.asarray(values, np.float64)
        return SyntheticDataset(NoisyCounts(counting, self.chosen(who), values, deviation, total, parties))

    def assess(self, presented: SyntheticDataset, train: Sequence[Records] | None, test: Records) -> Assessment:
        from comity.protocols.synthetic.fidelity import assess

        return assess(presented, train, test)

    # What the plan says.

    def protected(self, who: Consortium) -> int | None:
        return self.rows

    def expectation(self, who: Consortium) -> str:
        counting = self.counting(who)
        deviation = self._deviation(self._counts(counting, who), who, who.size)
        found = [block.weight for block in counting.layout.blocks]
        said = f"counts carry noise of deviation {deviation / max(found):.3g} to {deviation / min(found):.3g}"
        if self.rows is None:
            return f"{said}; declare synthetic.rows, a round figure, to see what that is of your records"
        errors = expected_errors(counting.layout, deviation, self.rows)
        pairs = [error for key, error in errors.items() if len(key) == 2] or list(errors.values())
        mean = sum(pairs) / len(pairs)
        useless = ", so expect a useless dataset: raise epsilon or bring more records" if mean > 0.5 else ""
        return (
            f"{said}: of a table, noise alone moves {mean:.2%} of {self.rows:,} records on average and "
            f"{max(errors.values()):.2%} at most, before tables are made to agree{useless}"
        )

    def notes(self, who: Consortium) -> tuple[str, ...]:
        counting, whole = self.counting(who), self.whole(who)
        layout = counting.layout
        found = [
            f"{layout.counts:,} counts of {layout.columns} columns in {len(layout.blocks)} tables, "
            f"{counting.bins} cells to a number of which the schema says nothing"
        ]
        if self.bins is None and counting.bins < BINS[0]:
            found.append(f"{BINS[0]} cells to a number would be too many counts: there are {counting.bins}")
        if self.model == "auto" and self.rows is None:
            found.append("model: mixture, because synthetic.rows says nothing that a rule could go by")
        elif self.model == "auto" and self.rows is not None:
            noise = noise_of_pairs(whole.layout, self._deviation(self._counts(whole, who), who, who.size), self.rows)
            than = "above" if noise > MOST_NOISE else "at most"
            found.append(
                f"model: {self.chosen(who)}, because the noise of a pair of columns would be {noise:.3g} of the "
                f"records, {than} {MOST_NOISE}"
            )
        many = who.size > DATASETS and self.pooling == "none"
        if many:
            found.append(f"above {DATASETS} parties only the dataset of all of them is written out")
        return (*found, "rows are made of the counts by public chance, by whoever holds them and as often as they like")
