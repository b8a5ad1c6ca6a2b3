"""How a protocol's table in a study becomes a protocol: validated parameters with sound defaults.

Which keys a variant has is said once, on the field: `Annotated[int, Only(variant="published")]`. A key that would be
ignored is refused, because whoever wrote it believes that it does something.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict

from comity.data import Schema
from comity.errors import StudyError
from comity.federation.protocol import Protocol
from comity.representation import short_repr

if TYPE_CHECKING:
    import pandas as pd

ABSENT = "absent"
"""The code of the DataError about a file that is not there, as opposed to one that can't be read."""


@dataclass(frozen=True)
class Setting:
    """What a protocol may use to build itself: public things only. `read` opens a file that a key of the study names,
    by its name and that key; `columns` are the patterns of [parties.NAME] columns; `pure` says that the study grants no
    delta; `privacy` are the values of [privacy]."""

    __repr__ = short_repr

    schema: Schema
    where: str
    read: Callable[[str, str], pd.DataFrame]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pure: bool = False
    privacy: Mapping[str, Any] = field(default_factory=dict)


class Only:
    """Marks a key that exists under some values of other keys alone. `why` is for whoever expects it elsewhere."""

    def __init__(self, *, why: str = "", **needs: str | tuple[str, ...]) -> None:
        self.why = why
        self.needs = {key: (values,) if isinstance(values, str) else values for key, values in needs.items()}

    def failing(self, values: Mapping[str, Any]) -> str | None:
        """The first key whose value rules this one out."""
        return next((key for key, allowed in self.needs.items() if values[key] not in allowed), None)


class Parameters(BaseModel):
    """Subclasses list the keys of their table as fields; a key that is not there is an error naming the nearest one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: ClassVar[str] = ""
    by_columns: ClassVar[bool] = False
    """Whether parties may hold other columns of the same people; elsewhere such a key would say what is not done."""
    facts: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """What keys may depend on that a study says elsewhere, by name: each value in words, for whoever is refused. What
    it is in a study is among `resolved`."""

    variant_privacy: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Values that keys of [privacy] must have, by variant. The protocol refuses others too; from here a study that has
    just been given another variant is told of all of them at once."""

    def privacy(self, setting: Setting) -> Mapping[str, str]:
        """Keys of [privacy] whose default is the method's own."""
        return {}

    def files(self) -> Mapping[str, str]:
        """Files whose content belongs to the study's hash, by the key that names them."""
        return {}

    def resolved(self, setting: Setting) -> dict[str, Any]:
        """Every value by its key; where one is chosen by public figures, what it comes to in this study."""
        return {key: getattr(self, key) for key in type(self).model_fields}

    def own_keys(self, setting: Setting) -> tuple[str, ...]:
        """The keys that mean something under these values; all others would be ignored."""
        values = self.resolved(setting)
        return tuple(
            key for key in type(self).model_fields if (only := self._only(key)) is None or only.failing(values) is None
        )

    def build(self, setting: Setting) -> Protocol:
        """The protocol; a key that it would ignore is refused."""
        self.check_target(setting)
        values = self.resolved(setting)
        self._check_variant(setting, values)
        for key in type(self).model_fields:
            only = self._only(key)
            ruled_out = None if only is None else only.failing(values)
            if only is None or ruled_out is None or key not in self.model_fields_set:
                continue
            why = f": {only.why}" if only.why else ""
            raise StudyError(
                f"{setting.where}: {self.table}.{key} belongs to {self._ruled_out(ruled_out, only, values)}{why}; "
                "leave one of them out",
                key=f"{self.table}.{key}",
            )
        return self.built(setting)

    def check_target(self, setting: Setting) -> None:
        """Refuse a schema whose target the method or its variant can't learn, whatever the other keys are."""

    def _check_variant(self, setting: Setting, values: Mapping[str, Any]) -> None:
        """Refuse a variant that needs several changes, with all of them: a study that makes them runs."""
        variant = values.get("variant")
        surplus = [
            f"{self.table}.{key}"
            for key in type(self).model_fields
            if key in self.model_fields_set
            and (only := self._only(key)) is not None
            and variant not in only.needs.get("variant", (variant,))
        ]
        needed = {
            f"privacy.{key}": value
            for key, value in self.variant_privacy.get(str(variant), {}).items()
            if key in setting.privacy and setting.privacy[key] != value
        }
        if len(surplus) + len(needed) < 2:
            return
        remedy = [f"remove {_listed(surplus)}"] if surplus else []
        remedy += [f"set {_listed([f'{key} to {value}' for key, value in needed.items()])}"] if needed else []
        marks = [self._only(key.partition(".")[2]) for key in surplus]
        reasons = dict.fromkeys(only.why for only in marks if only is not None and only.why)
        because = f" ({'; '.join(reasons)})" if reasons else ""
        raise StudyError(
            f'{setting.where}: {self.table}.variant = "{variant}" does not go with other keys of this study{because}; '
            f"{', and '.join(remedy)}, or leave {self.table}.variant out",
            key=(surplus or list(needed))[0],
        )

    def _ruled_out(self, by: str, only: Only, values: Mapping[str, Any]) -> str:
        """What a key would need instead of what the study has."""
        if by in self.facts:
            words = self.facts[by]
            return f"{' or '.join(words[value] for value in only.needs[by])}, found {words[values[by]]}"
        written = getattr(self, by)
        found = f'"{written}"' if written == values[by] else f'"{written}", here "{values[by]}"'
        allowed = " or ".join(f'"{value}"' for value in only.needs[by])
        return f"{self.table}.{by} = {allowed}, found {found}"

    def declared_records(self, party: str) -> int | None:
        """How many records the study says that a party has; None where it says nothing."""
        return None

    @abstractmethod
    def built(self, setting: Setting) -> Protocol:
        """The protocol, from keys that all have a meaning."""

    @classmethod
    def _only(cls, key: str) -> Only | None:
        return next((one for one in cls.model_fields[key].metadata if isinstance(one, Only)), None)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
