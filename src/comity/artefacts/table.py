"""A released table of figures: counts, rates, coefficients with their intervals."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from comity.artefacts.artefact import Card
from comity.artefacts.csv_cells import escape_cell
from comity.artefacts.section import Cell, Grid, Section
from comity.errors import DataError
from comity.representation import html_frame, short_repr

if TYPE_CHECKING:
    import pandas as pd

_FORMAT: Final = "comity-table-1"
_MAX_BYTES: Final = 1 << 28
# A page shows so many rows; the files have the rest.
_MAX_SHOWN = 60


@dataclass(frozen=True)
class Table:
    """Released figures by row. A cell is a text, a finite number, a truth value, or None.

        table = comity.Table(("ward", "visits"), (("surgery", 41.2), ("medicine", 80.9)), about="Visits by ward")
        table.frame

    `heads` are the names of the columns; `frame` is the table as a DataFrame.
    """

    __repr__ = short_repr

    kind: ClassVar[str] = "table"
    place: ClassVar[str] = "table"

    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    about: str = ""

    def __post_init__(self) -> None:
        if not self.heads or len(set(self.heads)) != len(self.heads):
            raise DataError(f"a table needs heads that differ, found {list(self.heads)}")
        for number, row in enumerate(self.rows, start=1):
            if len(row) != len(self.heads) or not all(map(_is_cell, row)):
                raise DataError(
                    f"row {number} of the table: expected {len(self.heads)} texts or finite numbers, found {row!r}"
                )

    @property
    def frame(self) -> pd.DataFrame:
        """The table as a DataFrame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=list(self.heads))

    def _repr_html_(self) -> str:
        return html_frame(self.about or type(self).__name__, self.frame)

    def column(self, head: str) -> tuple[Cell, ...]:
        """The cells under a head."""
        place = self.heads.index(head)
        return tuple(row[place] for row in self.rows)

    def save(self, folder: Path) -> None:
        page = {"format": _FORMAT, "about": self.about, "heads": self.heads, "rows": self.rows}
        text = json.dumps(page, indent=1, ensure_ascii=False, allow_nan=False)
        (folder / "table.json").write_text(text + "\n", encoding="utf-8")
        with (folder / "table.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([escape_cell(cell) for cell in row] for row in (self.heads, *self.rows))

    @classmethod
    def load(cls, folder: Path) -> Self:
        path = folder / "table.json"
        try:
            if path.stat().st_size > _MAX_BYTES:
                raise ValueError("it is larger than any table of figures")
            page = json.loads(path.read_text(encoding="utf-8"))
            if page["format"] != _FORMAT:
                raise ValueError(f"format {page['format']!r}")
            heads, about = tuple(page["heads"]), page["about"]
            if not all(isinstance(text, str) for text in (*heads, about)):
                raise TypeError("heads are texts")
            return cls(heads, tuple(map(tuple, page["rows"])), about)
        except (OSError, ValueError, KeyError, TypeError, RecursionError, DataError) as error:
            raise DataError(f"{path}: no table can be read here ({error}); fetch the folder again") from error

    def card(self) -> Card:
        what = self.about or "A table of figures"
        return Card(
            "released figures",
            f"{what.rstrip('.')} ({len(self.rows)} rows: {', '.join(self.heads)})",
            parts={
                "Files": "`table.json` and, for other programs, `table.csv` with the same content; no code is run by "
                "opening them. Use: `comity.load_artefact(folder)` in Python."
            },
        )

    def section(self, noise: float | None = None) -> Section:
        cut = len(self.rows) > _MAX_SHOWN
        note = f"The first {_MAX_SHOWN} of {len(self.rows)} rows; all are in table.csv." if cut else ""
        return Section(self.about or "Figures", tables=(Grid(self.heads, self.rows[:_MAX_SHOWN], note),))


def _is_cell(value: Any) -> bool:
    return value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
