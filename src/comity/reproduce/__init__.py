"""Tables and figures of papers by name: those of every method's entry, and those that compare methods."""

from __future__ import annotations

from comity.protocols import entries
from comity.protocols.entry import Reproduction

__all__ = ["REPRODUCTIONS", "Reproduction"]

_OF_SEVERAL = {
    "generalisation": Reproduction(
        "accuracy of the defaults on public tables, beside scikit-learn and diffprivlib (docs/accuracy.md)",
        "comity.reproduce.generalisation.comparison:run",
    ),
}

REPRODUCTIONS = {
    **_OF_SEVERAL,
    **{name: redone for entry in entries().values() for name, redone in entry.reproductions.items()},
}
