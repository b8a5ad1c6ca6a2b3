"""What is presented: a dataset, with the noisy counts that it was made from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

import pandas as pd

from comity.artefacts.artefact import Card
from comity.artefacts.dataset import Dataset
from comity.artefacts.section import Bar, Bars, Grid, Section
from comity.artefacts.table import Table
from comity.data import Schema
from comity.methods.synthetic.counts import NoisyCounts
from comity.methods.synthetic.expected import expected_errors
from comity.representation import short_repr

# More than a reader takes in.
_SHOWN = 20


@dataclass(frozen=True, eq=False)
class SyntheticDataset:
    """Records that are nobody's, made from `counts`; those that were read from files, or else made when first asked
    for. `len` is the number of rows."""

    __repr__ = short_repr

    kind: ClassVar[str] = "synthetic"
    place: ClassVar[str] = "data"

    counts: NoisyCounts
    read: pd.DataFrame | None = None

    @property
    def schema(self) -> Schema:
        return self.counts.schema

    @cached_property
    def frame(self) -> pd.DataFrame:
        return _made(self.counts) if self.read is None else self.read

    @property
    def dataset(self) -> Dataset:
        """The rows alone."""
        return Dataset(self.frame, self.schema)

    def __len__(self) -> int:
        return len(self.frame)

    # Further products of the same release, at no further cost.

    def rows(self, count: int | None = None, *, target: str | None = None) -> pd.DataFrame:
        """Another number of rows, or rows whose `target` is drawn anew from all other columns."""
        return self.counts.frame(count, target)

    def table_one(self, by: str | None = None) -> Table:
        """Counts, shares, means and quantiles of every column, with error bars; by the cells of a column if asked."""
        from comity.methods.synthetic.table_one import table_one

        return table_one(self.counts, by)

    def correlations(self) -> Table:
        """Between ordered columns, with error bars."""
        from comity.methods.synthetic.regression import correlation_table

        return correlation_table(self.counts)

    def regression(self, target: str, on: Sequence[str] | None = None) -> Table:
        """Least squares of an ordered column on all others, or on those that are named, with intervals."""
        from comity.methods.synthetic.regression import regression_table

        return regression_table(self.counts, target, on)

    # In files and on pages.

    def save(self, folder: Path) -> None:
        self.dataset.save(folder)
        self.counts.save(folder)

    @classmethod
    def load(cls, folder: Path) -> Self:
        return cls(NoisyCounts.load(folder), Dataset.load(folder).frame)

    def card(self) -> Card:
        own, counts = self.dataset.card(), self.counts
        how = {
            "mixture": "a mixture of independent columns that has the released two-way counts",
            "naive-bayes": "columns that are independent given the target, each with its released counts",
        }[counts.model]
        again = sum(one < 1 for one in counts.narrowed or ())
        twice = f"those of {again} tables counted twice, " if again else ""
        parts = dict(own.parts)
        parts["Expected error"] = " ".join(_expected(counts))
        parts["How it was made"] = (
            f"From {len(counts.values):,} noisy counts of {counts.parties} parties, {twice}the only thing that was "
            f"released: {how}. Labels of classes are drawn anew from all columns of a row. Numbers are uniform inside "
            "their bins."
        )
        parts["Files"] = (
            f"{own.parts['Files']} `counts.json` and `counts.npz` hold the counts: another number of rows, tables and "
            "regressions with error bars come from them at no further cost (`comity synth`)."
        )
        return Card("synthetic dataset", own.what, own.made, parts)

    def section(self, noise: float | None = None) -> Section:
        section, counts = self.dataset.section(noise), self.counts
        names = counts.counting.cells.names
        errors = expected_errors(counts.counting.layout, counts.deviations, counts.records)
        ranked = sorted(((error, key) for key, error in errors.items()), reverse=True)
        bars = tuple(Bar(" × ".join(names[k] for k in key), error) for error, key in ranked[:_SHOWN])
        plot = Bars("Expected total variation of noisy tables, the least exact first", "total variation", bars)
        rows = tuple(
            (" × ".join(names[k] for k in key), errors[key], counts.deviations[key])
            for key in counts.counting.layout.keys[:_SHOWN]
        )
        grid = Grid(("table", "expected total variation", "deviation of a count"), rows, "Before tables agree.")
        return Section(section.heading, (*section.sentences, *_expected(counts)), (plot,), (*section.tables, grid))


def _expected(counts: NoisyCounts) -> tuple[str, ...]:
    errors = expected_errors(counts.counting.layout, counts.deviations, counts.records)
    pairs = [error for key, error in errors.items() if len(key) == 2]
    found = [f"Counts carry noise of deviation {min(counts.deviations.values()):.3g} or more."]
    if pairs:
        found.append(
            f"Of a table of two columns, noise alone moves {sum(pairs) / len(pairs):.2%} of the records on average, "
            f"{max(pairs):.2%} at most, before tables are made to agree with each other."
        )
    return tuple(found)


_KEPT: OrderedDict[str, pd.DataFrame] = OrderedDict()


def _made(counts: NoisyCounts) -> pd.DataFrame:
    """The rows of these counts, which several receivers of one release ask for."""
    if counts.digest not in _KEPT:
        _KEPT[counts.digest] = counts.frame()
        while len(_KEPT) > 2:
            _KEPT.popitem(last=False)
    return _KEPT[counts.digest].copy()
