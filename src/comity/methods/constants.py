"""The constants that a paper fixes, by name: the paper's value, where it is printed, and the value in use.

A method with `variant = "published"` takes them as the defaults of its options. Each repair or improvement is an option
too, and is off in that variant unless a study turns it on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from comity.representation import html_frame

UNCHANGED: Final = object()


@dataclass(frozen=True)
class Constant:
    """A constant of a paper.

    `value`    what the paper uses.
    `source`   where it is printed, as in "section 5, table 1"; or why this value stands for one that is not printed.
    `meaning`  what it is, in a few words.
    `in_use`   what this method object uses. Other than `value` only where its author set the option.
    """

    value: Any
    source: str
    meaning: str
    in_use: Any = UNCHANGED

    def __post_init__(self) -> None:
        if self.in_use is UNCHANGED:
            object.__setattr__(self, "in_use", self.value)

    @property
    def is_papers(self) -> bool:
        """Whether the method uses the paper's value."""
        return bool(self.in_use == self.value)


class Constants(dict[str, Constant]):
    """The constants of a paper by name, printed as a table.

    constants = comity.Averaging(schema, variant="published").constants
    constants["l2"].value, constants["l2"].source
    """

    def __repr__(self) -> str:
        if not self:
            return "no constants: only variant='published' takes them from a paper"
        rows = [("constant", "value", "paper", "where printed"), *self._rows()]
        widths = [max(len(row[place]) for row in rows) for place in range(3)]
        return "\n".join(
            "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[3]]).rstrip() for row in rows
        )

    def _repr_html_(self) -> str:
        import pandas as pd

        heads = ["constant", "value", "paper", "where printed"]
        return html_frame("Constants of the paper", pd.DataFrame(self._rows(), columns=heads))

    def _rows(self) -> list[tuple[str, str, str, str]]:
        return [
            (name, str(one.in_use), "the same" if one.is_papers else str(one.value), f"{one.source}: {one.meaning}")
            for name, one in self.items()
        ]
