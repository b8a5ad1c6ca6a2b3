"""Synthetic records from two-way counts, the default: one secure sum with one noise, from which anyone makes rows.

After F. Fioretto, P. Van Hentenryck, Privacy-Preserving Federated Data Sharing, AAMAS 2019, where every agent releases
its own dataset. Here the agents' records are counted together: each count carries one noise instead of one per agent,
and one dataset results. With `rounds` = 2 a second sum counts the strongest pairs again. Derivations are in `proof.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import hypot
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from comity.data import CellEncoding, LocalRecords, Records, Schema
from comity.errors import Malformed, StudyError
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Counts, Range
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Derived, Noised, Summed
from comity.federation.declare.release import Array, Count, Each, Fields
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol, step
from comity.methods.synthetic.counts import (
    BINS,
    FIRST_SHARE,
    MAX_PAIR_NOISE,
    Counting,
    Recount,
    affords_pairs,
    expected_errors,
    fit_counting,
    pair_noise,
    split_loss,
    table_ranges,
)
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import Pure
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.unit import Neighbours, Unit

if TYPE_CHECKING:
    from comity.artefacts.artefact import Artefact
    from comity.federation.assessment import Assessment
    from comity.federation.own_score import OwnScore
    from comity.methods.synthetic.artefact import SyntheticDataset


Model = Literal["auto", "mixture", "naive-bayes"]


@dataclass(frozen=True, kw_only=True, eq=False)
class CountedData(Protocol):
    """One release of weighted counts of every column and pair of columns, and rows made of them.

    `rows` is the declared number of all records: a round figure for the rule that chooses the model.
    """

    name: ClassVar[str] = "synthetic"

    schema: Schema
    model: Model = "auto"
    rows: Annotated[int, Interval(ge=1)] | None = None
    bins: Annotated[int, Interval(ge=2, le=256)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self._gaussian.layout.counts

    # What the study fixes.

    @cached_property
    def _gaussian(self) -> Counting:
        return fit_counting(self.schema, bins=self.bins)

    @cached_property
    def _laplace(self) -> Counting:
        return fit_counting(self.schema, bins=self.bins, pure=True)

    @property
    def encoding(self) -> CellEncoding:
        """Records as cells, which do not depend on the noise."""
        return self._gaussian.encoding

    @property
    def cells(self) -> Counting:
        """The cells of records, whatever the noise is."""
        return self._gaussian

    def whole(self, consortium: Consortium) -> Counting:
        """With all pairs."""
        return self._laplace if isinstance(consortium.loss, Pure) else self._gaussian

    def counting(self, consortium: Consortium) -> Counting:
        """What is counted: all pairs, or those with the target where naive Bayes is chosen."""
        whole = self.whole(consortium)
        return whole.sparser if self.chosen(consortium) == "naive-bayes" else whole

    def chosen(self, consortium: Consortium) -> str:
        """The model, by the study or by a rule from public figures."""
        if self.model != "auto":
            return self.model
        whole = self.whole(consortium)
        deviation = self._counts(whole, consortium).opened_deviation(consortium, consortium.size)
        return "mixture" if affords_pairs(whole.layout, deviation, self.rows) else "naive-bayes"

    # What leaves.

    def _counts(self, counting: Counting, consortium: Consortium) -> Release:
        """The one release that costs anything."""
        raise NotImplementedError(f"{type(self).__name__} releases no counts")

    @staticmethod
    def _noise(consortium: Consortium) -> Gaussian | Laplace:
        return (
            Laplace(consortium.loss)
            if isinstance(consortium.loss, Pure)
            else Gaussian(gaussian_budget(consortium.loss))
        )

    # What a consumer works with.

    def _dataset(
        self,
        values: Any,
        parties: int,
        total: int | None,
        consortium: Consortium,
        narrowed: tuple[float, ...] | None = None,
    ) -> SyntheticDataset:
        """The dataset of opened counts; `total` is the number of records where it is public, `narrowed` by block how
        much narrower noise is than that of the release."""
        from comity.methods.synthetic.artefact import NoisyCounts, SyntheticDataset

        counting = self.counting(consortium)
        deviation = self._counts(counting, consortium).opened_deviation(consortium, parties)
        values = np.asarray(values, np.float64)
        return SyntheticDataset(
            NoisyCounts(counting, self.chosen(consortium), values, deviation, total, parties, narrowed)
        )

    # What the plan says.

    def _titled(self, consortium: Consortium, how: str = "") -> str:
        noise = "Laplace" if isinstance(consortium.loss, Pure) else "Gaussian"
        return f"synthetic ({self.chosen(consortium)}, {noise}{how})"

    def protected(self, consortium: Consortium) -> int | None:
        return self.rows

    def _planned(self, consortium: Consortium) -> dict[tuple[int, ...], float]:
        """The deviation of each table's counts, as far as it is known before anything runs."""
        counting = self.counting(consortium)
        return counting.layout.deviations(
            self._counts(counting, consortium).opened_deviation(consortium, consortium.size)
        )

    def expectation(self, consortium: Consortium) -> str:
        deviations = self._planned(consortium)
        found = deviations.values()
        said = f"counts carry noise of deviation {min(found):.3g} to {max(found):.3g}"
        if self.rows is None:
            return f"{said}; declare synthetic.rows, a round figure, to see what that is of your records"
        errors = expected_errors(self.counting(consortium).layout, deviations, self.rows)
        pairs = [error for key, error in errors.items() if len(key) == 2] or list(errors.values())
        mean = sum(pairs) / len(pairs)
        useless = ", so expect a useless dataset: raise epsilon or bring more records" if mean > 0.5 else ""
        return (
            f"{said}: of a table, noise alone moves {mean:.2%} of {self.rows:,} records on average and "
            f"{max(errors.values()):.2%} at most, before tables are made to agree{useless}"
        )

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        counting, whole = self.counting(consortium), self.whole(consortium)
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
            noise = pair_noise(
                whole.layout, self._counts(whole, consortium).opened_deviation(consortium, consortium.size), self.rows
            )
            than = "above" if noise > MAX_PAIR_NOISE else "at most"
            found.append(
                f"model: {self.chosen(consortium)}, because the noise of a pair of columns would be {noise:.3g} of the "
                f"records, {than} {MAX_PAIR_NOISE}"
            )
        return (*found, "rows are made of the counts by public chance, by whoever holds them and as often as they like")


Pooling = Literal["sum", "none"]
Rounds = Annotated[int, Interval(ge=1, le=2)]
"""How often."""

# Records that one party may count; cells are cut beyond. It decides how wide the integers are, and moves no noise: a
# limit of size.
MAX_RECORDS = 1 << 31
# Of so many parties that release alone each has a dataset of its own beside the common one: a limit of size.
MAX_DATASETS = 16


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
    others by itself. With `rounds` = 2 all tables are counted with a part of the loss, and those with the target and
    the strongest of the others again with the rest; each of the two sums has the sensitivity of its own tables
    (proof.md, 4).
    """

    pooling: Pooling = "sum"
    rounds: Rounds = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds == 2 and self.pooling == "none":
            raise StudyError(
                'synthetic.rounds = 2 chooses from the counts of all parties together, found pooling = "none"; set '
                'rounds = 1, or pooling = "sum"',
                key="synthetic.rounds",
            )
        if self.rounds == 2:
            assert Recount(self.cells.layout).chosen

    def titled(self, consortium: Consortium) -> str:
        alone = ", each party alone" if self.pooling == "none" else ""
        return self._titled(consortium, ", two rounds" if self.rounds == 2 else alone)

    # What leaves.

    def declare(self, consortium: Consortium) -> Declaration:
        if consortium.unit is not Unit.RECORD:
            raise StudyError(
                f'synthetic protects a record; found privacy.unit = "{consortium.unit}". Set privacy.unit = "record"',
                key="privacy.unit",
            )
        counts = self._counts(self.counting(consortium), consortium)
        one = Array(counts.shape)
        if self.rounds == 2:
            return self._declare_both(counts, consortium)
        tables = Release(
            name="tables",
            source=COORDINATOR,
            to=EVERYONE,
            protection=Derived("counts"),
            form=Each(one) if self.pooling == "none" else Fields({"counts": one, "parties": Count(consortium.size)}),
        )
        alone = "whoever receives what a party released, coordinator and other parties included"
        return Declaration(
            (counts, tables), adversary=alone if self.pooling == "none" else _coordinator_with_parties(consortium)
        )

    def _declare_both(self, counts: Release, consortium: Consortium) -> Declaration:
        if self.chosen(consortium) == "naive-bayes":
            raise StudyError(
                "synthetic.rounds = 2 counts the strongest pairs of columns again, and the model is naive-bayes, which "
                'knows only those with the target; set rounds = 1, or model = "mixture"',
                key="synthetic.rounds",
            )
        again = self._again(consortium)
        one, pairs, many = Array(counts.shape), Array((self.recount(consortium).chosen,), "<i8"), Count(consortium.size)
        opened, listed = (
            Release(name=name, source=COORDINATOR, to=EVERY_PARTY, protection=Derived("counts"), form=form)
            for name, form in (("opened", one), ("pairs", pairs))
        )
        tables = Release(
            name="tables",
            source=COORDINATOR,
            to=EVERYONE,
            protection=Derived("counts", "again"),
            form=Fields(
                {"counts": one, "parties": many, "pairs": pairs, "again": Array(again.shape), "parties_again": many}
            ),
        )
        return Declaration((counts, opened, listed, again, tables), adversary=_coordinator_with_parties(consortium))

    def recount(self, consortium: Consortium) -> Recount:
        """What a second round counts."""
        return Recount(self.whole(consortium).layout)

    def _counts(self, counting: Counting, consortium: Consortium) -> Release:
        noise = split_loss(consortium)[0] if self.rounds == 2 else self._noise(consortium)
        return self._counted("counts", counting.layout.counts, counting.layout.weights, noise, consortium)

    def _again(self, consortium: Consortium) -> Release:
        recount = self.recount(consortium)
        return self._counted("again", recount.counts, recount.weights, split_loss(consortium)[1], consortium)

    def _counted(
        self, name: str, counts: int, weights: tuple[int, ...], noise: Gaussian | Laplace, consortium: Consortium
    ) -> Release:
        return Release(
            name=name,
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Noised(noise) if self.pooling == "none" else Summed(noise),
            form=Array((counts,), "<i8"),
            bound=Counts(weights, consortium.neighbours is Neighbours.REPLACE, MAX_RECORDS),
        )

    @property
    def stackable(self) -> bool:
        return self.pooling == "sum"

    def streams(self, consortium: Consortium) -> bool:
        return True

    # What the coordinator does.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        if self.rounds == 2:
            return {"tables": self._both(parties)}
        if self.pooling == "sum":
            total = parties.sum(self.count)
            parties.require("counts", total.parties, self._ranges(total.value, parties.consortium))
            return {"tables": {"counts": total.value, "parties": total.parties}}
        consortium, release = parties.consortium, parties.declaration["counts"]
        grid = release.spacing(consortium)
        got = parties.ask(self.count, need=release.min_parties(consortium))
        tables = {party: np.asarray(values["counts"] * grid, np.float64) for party, values in got.items()}
        for party, counts in tables.items():
            parties.require("counts", 1, self._ranges(counts, consortium), sender=party)
        return {"tables": tables}

    def _ranges(self, counts: NDArray[np.float64], consortium: Consortium) -> tuple[Range, ...]:
        return table_ranges(self.counting(consortium).layout, counts, about=self.rows)

    def _both(self, parties: Parties) -> dict[str, Any]:
        first = parties.sum(self.count)
        parties.require("counts", first.parties, self._ranges(first.value, parties.consortium))
        pairs = self._strongest(first.value, parties.consortium)
        second = parties.sum(self.count_again, opened=first.value, pairs=pairs)
        return {
            "counts": first.value,
            "parties": first.parties,
            "pairs": pairs,
            "again": second.value,
            "parties_again": second.parties,
        }

    def _strongest(self, opened: NDArray[np.float64], consortium: Consortium) -> NDArray[np.int64]:
        return self.recount(consortium).strongest(
            opened, self._counts(self.whole(consortium), consortium).opened_deviation(consortium, consortium.size)
        )

    # What a site does.

    @step(sends="counts", stacked=True)
    def count(self, site: Site) -> None:
        layout = self.counting(site.consortium).layout
        site.contribute(site.total(lambda rows: layout.count(rows.features, rows.filled)))

    @step(sends="again", stacked=True)
    def count_again(self, site: Site, opened: NDArray[np.float64], pairs: NDArray[np.int64]) -> None:
        """Only what the opened counts say: a list of the coordinator's own could ask for what nobody agreed to."""
        consortium = site.consortium
        if not np.array_equal(pairs, self._strongest(opened, consortium)):
            raise Malformed(
                "the pairs to be counted again are not the strongest of the opened counts; nothing was drawn. Ask the "
                "coordinator which version it runs",
                code="form",
                key="pairs",
            )
        recount = self.recount(consortium)
        site.contribute(site.total(lambda rows: recount.count(pairs, rows.features, rows.filled)))

    # What a consumer works with.

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> SyntheticDataset:
        tables = released["tables"]
        # Without a party that was in the first, the second is about other records: no mean of both is about either.
        if self.rounds == 2 and tables["parties"] == tables["parties_again"]:
            return self._combined(tables, consortium)
        if self.pooling == "none":
            return self._made(sum(tables.values()), len(tables), consortium)
        return self._made(tables["counts"], tables["parties"], consortium)

    def beside(
        self, released: Mapping[str, Any], consortium: Consortium, *, study: str, run: str
    ) -> Mapping[str, Artefact]:
        """Of parties that release alone, each one's own dataset."""
        tables = released["tables"] if self.pooling == "none" else {}
        if not 1 < len(tables) <= MAX_DATASETS:
            return {}
        return {
            f"data-{place}": self._made(tables[party], 1, consortium)
            for place, party in self._numbered(tables, consortium)
        }

    @staticmethod
    def _numbered(tables: Mapping[str, Any], consortium: Consortium) -> Sequence[tuple[int, str]]:
        return [(place, party) for place, party in enumerate(consortium.parties, start=1) if party in tables]

    def _combined(self, tables: Mapping[str, Any], consortium: Consortium) -> SyntheticDataset:
        parties = int(tables["parties"])
        rounds = (self._counts(self.whole(consortium), consortium), self._again(consortium))
        first, second = (release.opened_deviation(consortium, parties) for release in rounds)
        both = self.recount(consortium).combined(
            np.asarray(tables["counts"], np.float64), tables["again"], tables["pairs"], (first, second)
        )
        return self._made(both.values, parties, consortium, both.narrowed)

    def _made(
        self, values: Any, parties: int, consortium: Consortium, narrowed: tuple[float, ...] | None = None
    ) -> SyntheticDataset:
        replaced = consortium.neighbours is Neighbours.REPLACE
        # The declared number is that of all records: one party's own is in its counts alone.
        return self._dataset(
            values, parties, self.rows if replaced and parties == consortium.size else None, consortium, narrowed
        )

    def assess(self, presented: SyntheticDataset, train: Sequence[Records] | None, test: Records) -> Assessment:
        from comity.methods.synthetic.fidelity import assess, pool_records

        if train is None:
            return assess(presented, None, test)
        return assess(presented, pool_records(train), test, lambda task, tested: task.compare(train, tested))

    def score_own(self, presented: Any, records: LocalRecords, party: str) -> OwnScore | None:
        from comity.methods.synthetic.fidelity import score_columns, score_target

        if self.schema.target is not None:
            return score_target(presented, records)
        return score_columns(presented, records, tuple(range(len(self.cells.cells.names))))

    # What the plan says.

    def _planned(self, consortium: Consortium) -> dict[tuple[int, ...], float]:
        """Which pairs are counted again is not known before the first round: those with the target are."""
        found = super()._planned(consortium)
        if self.rounds == 2:
            found |= {
                block.key: found[block.key] * self._narrower(consortium) for block in self.recount(consortium).labelled
            }
        return found

    def _narrower(self, consortium: Consortium) -> float:
        """The deviation of what both rounds count over that of the first."""
        rounds = (self._counts(self.whole(consortium), consortium), self._again(consortium))
        first, second = (release.opened_deviation(consortium, consortium.size) for release in rounds)
        return second / hypot(first, second)

    def _said_of_rounds(self, consortium: Consortium) -> str:
        recount = self.recount(consortium)
        return (
            f"two rounds: the first counts all tables with {FIRST_SHARE:.0%} of the loss; the second spends the rest "
            f"on the {len(recount.labelled)} tables with the target and the {recount.chosen} strongest of "
            f"{len(recount.candidates)} others, chosen from the opened counts. For these the deviation falls to "
            f"{self._narrower(consortium):.2f} of the first round's. If a party drops out in between, only the first "
            "round is used"
        )

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        many = consortium.size > MAX_DATASETS and self.pooling == "none"
        said = (f"above {MAX_DATASETS} parties only the dataset of all of them is written out",) if many else ()
        rounds = (self._said_of_rounds(consortium),) if self.rounds == 2 else ()
        return (*super().notes(consortium), *said, *rounds)


def _coordinator_with_parties(consortium: Consortium) -> str:
    return f"an honest-but-curious coordinator with up to {consortium.colluders} of {consortium.size} parties"
