"""How a protocol's table in a study becomes a protocol: validated parameters with sound defaults."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pandas as pd
from pydantic import BaseModel, ConfigDict

from comity.data import Schema
from comity.federation.protocol import Protocol


@dataclass(frozen=True)
class Setting:
    """What a protocol may use to build itself: public things only. `read` opens a public file named in the study;
    `columns` are the patterns of [parties.NAME] columns; `pure` says that the study grants no delta."""

    schema: Schema
    where: str
    read: Callable[[str], pd.DataFrame]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pure: bool = False


class Parameters(BaseModel):
    """Subclasses list the keys of their table as fields; a key that is not there is an error naming the nearest one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def public_files(self) -> tuple[str, ...]:
        """Files whose content belongs to the study's hash."""
        return ()

    def declared_records(self, party: str) -> int | None:
        """How many records the study says that a party has; None where it says nothing."""
        return None

    @abstractmethod
    def build(self, setting: Setting) -> Protocol: ...
