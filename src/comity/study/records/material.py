"""What the parties of a simulation hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from comity.data import LocalRecords, Records
from comity.learn.local_models import LocalModel
from comity.representation import short_repr


@dataclass(frozen=True, eq=False)
class Material:
    """Each party's records, and its own model where it has one; records to `test` on that no party has; and what is odd
    about all of them, in sentences."""

    __repr__ = short_repr

    parties: Mapping[str, LocalRecords]
    test: Records | None = None
    models: Mapping[str, LocalModel] = field(default_factory=dict)
    findings: tuple[str, ...] = ()

    @property
    def whole(self) -> list[Records] | None:
        """All records in memory at once; None where some are read in blocks."""
        found = [held for held in self.parties.values() if isinstance(held, Records)]
        return found if len(found) == len(self.parties) else None
