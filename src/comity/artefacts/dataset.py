"""Released records: a table with its schema, read like an owner's data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Self

import pandas as pd

from comity.artefacts.artefact import Card
from comity.artefacts.csv_cells import escape_frame, unescape_frame
from comity.artefacts.section import Cell, Grid, Section
from comity.data import Categorical, Classes, Column, Ordinal, Schema, Target, explain, open_source
from comity.errors import DataError, SchemaError
from comity.representation import html_frame, short_repr

# A page shows so many columns, and so many categories of a column.
_MAX_COLUMNS, _MAX_CATEGORIES = 40, 6


@dataclass(frozen=True, eq=False)
class Dataset:
    """Released records with their schema. `stored` is the format that they are saved in.

        dataset = comity.Synthetic(schema, sizes=400).simulate(frames, epsilon=1, delta=1e-6).dataset
        dataset.frame.describe()

    Whatever is computed from released records costs nothing more.
    """

    __repr__ = short_repr

    kind: ClassVar[str] = "dataset"
    place: ClassVar[str] = "data"

    frame: pd.DataFrame
    schema: Schema
    stored: Literal["parquet", "csv"] = "parquet"

    def __post_init__(self) -> None:
        _require_fit(self.schema, self.frame, "the dataset")

    def __len__(self) -> int:
        return len(self.frame)

    def _repr_html_(self) -> str:
        return html_frame(f"{type(self).__name__} of {len(self):,} records", self.frame)

    def save(self, folder: Path) -> None:
        if self.stored == "parquet":
            self.frame.to_parquet(folder / "data.parquet", index=False)
        else:
            escape_frame(self.frame).to_csv(folder / "data.csv", index=False)
        (folder / "schema.toml").write_text(self.schema.to_toml(), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        try:
            schema = Schema.load(folder / "schema.toml")
        except SchemaError as error:
            raise DataError(f"{error} Fetch the folder again") from error
        stored: Literal["parquet", "csv"] = "parquet" if (folder / "data.parquet").exists() else "csv"
        path = folder / f"data.{stored}"
        frame = open_source(path, where=str(path)).read()
        if stored == "csv":
            frame = unescape_frame(frame)
        _require_fit(schema, frame, str(path))
        return cls(frame, schema, stored)

    def card(self) -> Card:
        columns = ", ".join(f"`{column.name}`" for column in _columns(self.schema))
        return Card(
            "released dataset",
            f"A dataset of {len(self):,} records with {len(_columns(self.schema))} columns",
            parts={
                "Columns": f"{columns}, as `schema.toml` describes them (bounds, categories, missing values).",
                "Intended use and limits": "The study file records no intended use; the parties that made the dataset "
                "decide on it. Whatever is computed from it costs nothing more. It follows what the study measured: "
                "relations that it did not measure are not in it, and a record of it is nobody's.",
                "Files": f"`data.{self.stored}` and `schema.toml`; no code is run by opening them. Use: any program "
                "that reads tables, a study's `[simulation] data`, or `comity.load_artefact(folder)` in Python.",
            },
        )

    def section(self, noise: float | None = None) -> Section:
        columns = _columns(self.schema)
        more = (
            f"; {len(columns) - _MAX_COLUMNS} further columns are in the files" if len(columns) > _MAX_COLUMNS else ""
        )
        rows = tuple(_described(column, self.frame[column.name]) for column in columns[:_MAX_COLUMNS])
        return Section(
            "The dataset",
            (f"{len(self):,} records, {len(columns)} columns.",),
            tables=(Grid(("column", "kind", "content"), rows, f"Figures of the released records{more}."),),
        )


def _columns(schema: Schema) -> Sequence[Column | Target]:
    return [*schema.columns, *(() if schema.target is None else (schema.target,))]


def _described(column: Column | Target, values: pd.Series) -> tuple[Cell, ...]:
    kind = type(column).__name__.lower()
    if isinstance(column, Categorical | Ordinal | Classes):
        shares = values.astype(str).value_counts(normalize=True)
        shown = ", ".join(f"{label} {share:.0%}" for label, share in shares.head(_MAX_CATEGORIES).items())
        return (
            column.name,
            kind,
            shown + (f" and {len(shares) - _MAX_CATEGORIES} more" * (len(shares) > _MAX_CATEGORIES)),
        )
    if not len(values.dropna()) or not pd.api.types.is_numeric_dtype(values):
        content = f"{values.dropna().nunique()} values"
        return column.name, kind, content
    return column.name, kind, f"{values.min():.4g} to {values.max():.4g}, mean {values.mean():.4g}"


def _require_fit(schema: Schema, frame: pd.DataFrame, where: str) -> None:
    for finding in explain(schema, frame, where):
        # A table without records is still a dataset.
        if finding.severity == "error" and finding.column:
            raise DataError(f"{where}: the records do not fit their schema: {finding.sentence}")
