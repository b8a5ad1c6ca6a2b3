"""What every synthetic study shares that releases counts, whoever holds rows or columns: what is counted, which model
is chosen, what the plan says, and what is made of the counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Interval

from comity.data import CellEncoding, Schema
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Release
from comity.federation.protocol import Protocol
from comity.methods.synthetic.counting import BINS, Counting, counting_of
from comity.methods.synthetic.expected import expected_errors
from comity.methods.synthetic.rule import MOST_NOISE, carries_pairs, noise_of_pairs
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import Pure
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace

if TYPE_CHECKING:
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
        deviation = self._counts(whole, who).opened_deviation(who, who.size)
        return "mixture" if carries_pairs(whole.layout, deviation, self.rows) else "naive-bayes"

    # What leaves.

    def _counts(self, counting: Counting, who: Consortium) -> Release:
        """The one release that costs anything."""
        raise NotImplementedError(f"{type(self).__name__} releases no counts")

    @staticmethod
    def _noise(who: Consortium) -> Gaussian | Laplace:
        return Laplace(who.loss) if isinstance(who.loss, Pure) else Gaussian(gaussian_budget(who.loss))

    # What a consumer works with.

    def _dataset(
        self,
        values: Any,
        parties: int,
        total: int | None,
        who: Consortium,
        narrowed: tuple[float, ...] | None = None,
    ) -> SyntheticDataset:
        """The dataset of opened counts; `total` is the number of records where it is public, `narrowed` by block how
        much narrower noise is than that of the release."""
        from comity.methods.synthetic.artefact import SyntheticDataset
        from comity.methods.synthetic.counts import NoisyCounts

        counting = self.counting(who)
        deviation = self._counts(counting, who).opened_deviation(who, parties)
        values = np.asarray(values, np.float64)
        return SyntheticDataset(NoisyCounts(counting, self.chosen(who), values, deviation, total, parties, narrowed))

    # What the plan says.

    def _titled(self, who: Consortium, how: str = "") -> str:
        noise = "Laplace" if isinstance(who.loss, Pure) else "Gaussian"
        return f"synthetic ({self.chosen(who)}, {noise}{how})"

    def protected(self, who: Consortium) -> int | None:
        return self.rows

    def _planned(self, who: Consortium) -> dict[tuple[int, ...], float]:
        """The deviation of each table's counts, as far as it is known before anything runs."""
        counting = self.counting(who)
        return counting.layout.deviations(self._counts(counting, who).opened_deviation(who, who.size))

    def expectation(self, who: Consortium) -> str:
        deviations = self._planned(who)
        found = deviations.values()
        said = f"counts carry noise of deviation {min(found):.3g} to {max(found):.3g}"
        if self.rows is None:
            return f"{said}; declare synthetic.rows, a round figure, to see what that is of your records"
        errors = expected_errors(self.counting(who).layout, deviations, self.rows)
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
            noise = noise_of_pairs(whole.layout, self._counts(whole, who).opened_deviation(who, who.size), self.rows)
            than = "above" if noise > MOST_NOISE else "at most"
            found.append(
                f"model: {self.chosen(who)}, because the noise of a pair of columns would be {noise:.3g} of the "
                f"records, {than} {MOST_NOISE}"
            )
        return (*found, "rows are made of the counts by public chance, by whoever holds them and as often as they like")
