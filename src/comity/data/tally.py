"""What the schema changed in an owner's records: clipped, unknown and missing values, counted for the owner
alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

Kind = Literal["clipped", "unknown", "missing"]


@dataclass(frozen=True)
class Tally:
    """Counts per column. They are exact functions of private records, so they stay on the owner's machine.

    No codec takes a `Tally`, and no release is made from one. `first` records of the same source come before these.
    """

    records: int
    clipped: Counter[str]
    unknown: Counter[str]
    missing: Counter[str]
    first: int = 0

    @classmethod
    def start(cls, records: int = 0, first: int = 0) -> Tally:
        return cls(records, Counter(), Counter(), Counter(), first)

    def add(self, kind: Kind, column: str, count: int) -> None:
        if count:
            getattr(self, kind)[column] += count

    def __add__(self, after: Tally) -> Tally:
        return Tally(
            self.records + after.records,
            self.clipped + after.clipped,
            self.unknown + after.unknown,
            self.missing + after.missing,
            self.first,
        )

    def sentences(self) -> list[str]:
        """One line per column and kind, for the owner's terminal."""
        kinds = (
            ("clipped to the schema's bounds", self.clipped),
            ("counted as other", self.unknown),
            ("missing and filled by policy", self.missing),
        )
        return [
            f"{column}: {count} of {self.records} {what}" for what, counts in kinds for column, count in counts.items()
        ]

    def __repr__(self) -> str:
        return f"Tally(local, never sent: {'; '.join(self.sentences()) or 'nothing changed'})"
