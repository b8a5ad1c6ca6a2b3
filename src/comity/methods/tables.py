"""Validation of tables in study and site files. The error about an unknown key names the nearest known one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from comity.errors import BadInput, StudyError, nearest_name

Model = TypeVar("Model", bound=BaseModel)


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def validate(model: type[Model], value: Any, where: str, prefix: str, extra: Sequence[str] = ()) -> Model:
    """A table of a file as a model, or one error about the first thing that is wrong with it. `prefix` precedes its
    keys in the error; `extra` names further tables that are read elsewhere."""
    if not isinstance(value, Mapping):
        raise StudyError(f"{where}: {prefix.rstrip('.')} must be a table, found {value!r}", key=prefix.rstrip("."))
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise describe_first_error(error, model, where, prefix, extra) from None


# What a value that may be of several types was tried as: no part of its key.
_ALTERNATIVE = re.compile(r"(constrained-)?(float|int)$|literal\[|dict\[|none$")


def describe_first_error(
    error: ValidationError, model: type[BaseModel], where: str, prefix: str, extra: Sequence[str] = ()
) -> BadInput:
    """One error for the first thing that is wrong. A misspelt key comes first: it is why the right one is missing."""
    everything = error.errors()
    wrong = next((one for one in everything if one["type"] == "extra_forbidden"), everything[0])
    key = prefix + ".".join(str(part) for part in wrong["loc"] if not _ALTERNATIVE.match(str(part)))
    if wrong["type"] == "extra_forbidden":
        names = [*_names(model, wrong["loc"][:-1]), *(extra if len(wrong["loc"]) == 1 else ())]
        return StudyError(
            f"{where}: unknown key {key}{hint(str(wrong['loc'][-1]), names)}; known here: {', '.join(names)}",
            key=key,
        )
    if wrong["type"] == "missing":
        return StudyError(f"{where}: {key} is missing; add it", key=key)
    return StudyError(f"{where}: {key} = {wrong['input']!r}: {wrong['msg'][0].lower() + wrong['msg'][1:]}", key=key)


def _names(model: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    at: Any = model
    for part in path:
        field = at.model_fields.get(str(part)) if isinstance(at, type) and issubclass(at, BaseModel) else None
        at = field.annotation if field is not None else None
    if not (isinstance(at, type) and issubclass(at, BaseModel)):
        return []
    return [field.alias or name for name, field in at.model_fields.items()]


def hint(found: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    """The nearest known name, for the end of a sentence."""
    close = nearest_name(found, known)
    return f" (did you mean {close}?)" if close else ""
