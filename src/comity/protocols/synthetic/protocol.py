"""Synthetic records from two-way counts, the default: one secure sum, paid once, and rows that anybody makes of it.

After F. Fioretto, P. Van Hentenryck, Privacy-Preserving Federated Data Sharing, AAMAS 2019, where every agent releases
a dataset of its own. Here the agents' records are counted together: every count carries one noise instead of one for
each agent, and one dataset comes of it. Derivations are in `proof.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from comity.data import Records
from comity.errors import StudyError
from comity.federation.bounds import Counts
from comity.federation.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declaration import Declaration, Release
from comity.federation.forms import Array, Count, Each, Fields
from comity.federation.parties import Parties
from comity.federation.protection import Derived, Noised, Summed
from comity.federation.protocol import step
from comity.federation.site import Site
from comity.privacy.unit import Neighbours, Unit
from comity.protocols.synthetic.counted import CountedData
from comity.protocols.synthetic.counting import Counting

if TYPE_CHECKING:
    from comity.artefacts.artefact import Artefact
    from comity.federation.assessment import Assessment
    from comity.protocols.synthetic.artefact import SyntheticDataset

Pooling = Literal["sum", "none"]

# Records that one party may count; cells are cut beyond. It decides how wide the integers are, and moves no noise: a
# limit of size.
MOST_RECORDS = 1 << 31
# Of so many parties that release alone each has a dataset of its own beside the common one: a limit of size.
DATASETS = 16


@dataclass(frozen=True, kw_only=True, eq=False)
class SyntheticData(CountedData):
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

    pooling: Pooling = "sum"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pooling not in get_args(Pooling):
            raise StudyError(
                f"synthetic.pooling must be one of {', '.join(get_args(Pooling))}, found {self.pooling!r}",
                key="synthetic.pooling",
            )

    def titled(self, who: Consortium) -> str:
        return self._titled(who, ", each party alone" if self.pooling == "none" else "")

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
        noise = self._noise(who)
        return Release(
            name="counts",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Noised(noise) if self.pooling == "none" else Summed(noise),
            form=Array((counting.layout.counts,), "<i8"),
            bound=Counts(counting.layout.weights, who.neighbours is Neighbours.REPLACE, MOST_RECORDS),
        )

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
        replaced = who.neighbours is Neighbours.REPLACE
        # The declared number is that of all records: one party's own is in its counts alone.
        return self._dataset(values, parties, self.rows if replaced and parties == who.size else None, who)

    def assess(self, presented: SyntheticDataset, train: Sequence[Records] | None, test: Records) -> Assessment:
        from comity.protocols.synthetic.downstream import together
        from comity.protocols.synthetic.fidelity import assess

        if train is None:
            return assess(presented, None, test)
        return assess(presented, together(train), test, lambda task, tested: task.compare(train, tested))

    # What the plan says.

    def notes(self, who: Consortium) -> tuple[str, ...]:
        many = who.size > DATASETS and self.pooling == "none"
        said = (f"above {DATASETS} parties only the dataset of all of them is written out",) if many else ()
        return (*super().notes(who), *said)
