"""Validation of tables in study and site files. The error about an unknown key names the nearest known one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, LiteralString, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, ValidatorFunctionWrapHandler, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from comity.errors import BadInput, StudyError, nearest_name
from comity.untrusted.text import shorten

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Model = TypeVar("Model", bound=BaseModel)


class TypedTable(BaseModel):
    """Values of a file keep their types: `epsilon = true` and `epsilon = "1"` are slips, which pydantic would take
    for 1."""

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_other_types(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> Self:
        made: Self = handler(value)
        if isinstance(value, Mapping):
            for name, field in cls.model_fields.items():
                key = field.alias if field.alias is not None and field.alias in value else name
                slip = _find_converted(value.get(key), getattr(made, name, None), (key,))
                if slip is not None:
                    place, required, found = slip
                    details = InitErrorDetails(type=PydanticCustomError("other_type", required), loc=place, input=found)
                    raise ValidationError.from_exception_data(cls.__name__, [details])
        return made


class Table(TypedTable):
    model_config = ConfigDict(extra="forbid", frozen=True)


_Place = tuple[str | int, ...]


def _find_converted(given: Any, made: Any, place: _Place) -> tuple[_Place, LiteralString, Any] | None:
    """The first value of which another type was made: its place, what it should have been, and the value. Looks into
    lists and tables."""
    if isinstance(made, bool):
        slips = isinstance(given, str | int | float) and not isinstance(given, bool)
        return (place, "must be true or false", given) if slips else None
    if isinstance(made, int | float):
        return (place, "must be a number", given) if isinstance(given, bool | str) else None
    pairs: list[tuple[str | int, Any, Any]] = []
    if isinstance(made, Mapping) and isinstance(given, Mapping):
        pairs = [(str(key), given.get(key), one) for key, one in made.items()]
    elif isinstance(made, list | tuple) and isinstance(given, list | tuple):
        pairs = [(at, *both) for at, both in enumerate(zip(given, made))]
    found = (_find_converted(one, other, (*place, key)) for key, one, other in pairs)
    return next((slip for slip in found if slip is not None), None)


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
_ALTERNATIVE = re.compile(r"(constrained-)?(float|int)$|literal\[|dict\[|none$|function-")


def describe_first_error(
    error: ValidationError, model: type[BaseModel], where: str, prefix: str, extra: Sequence[str] = ()
) -> BadInput:
    """One error for the first thing that is wrong. A misspelt key comes first: it is why the right one is missing."""
    everything = error.errors()
    wrong = next((one for one in everything if one["type"] == "extra_forbidden"), everything[0])
    key = _key_of(wrong, prefix)
    if wrong["type"] == "extra_forbidden":
        names = [*_names(model, wrong["loc"][:-1]), *(extra if len(wrong["loc"]) == 1 else ())]
        return StudyError(
            f"{where}: unknown key {key}{hint(str(wrong['loc'][-1]), names)}; known here: {', '.join(names)}",
            key=key,
        )
    if wrong["type"] == "missing":
        return StudyError(f"{where}: {key} is missing; add it", key=key)
    # A key that may be of several types has an error for each.
    every = dict.fromkeys(_requirement(one) for one in everything if _key_of(one, prefix) == key)
    required = " or ".join([next(iter(every)), *(one.removeprefix("must be ") for one in [*every][1:])])
    sentence = f"{key} {required}, found {_as_written(wrong['input'])}" if required.startswith("must ") else None
    return StudyError(f"{where}: {sentence or f'{key}: {required}'}", key=key)


def _key_of(error: ErrorDetails, prefix: str) -> str:
    return prefix + ".".join(str(part) for part in error["loc"] if not _ALTERNATIVE.match(str(part)))


def _as_written(value: Any) -> str:
    """A value as a file has it."""
    return str(value).lower() if isinstance(value, bool) else shorten(repr(value))


# What a value must be, by pydantic's type of the error, where its sentence would not say it to a stranger.
_REQUIREMENTS = {
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "finite_number": "must be a finite number",
    "string_type": "must be text in quotes",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_too_short": "must not be empty",
}


_CHARACTERS = re.compile(r"\^\[(?!\^)(.+)\]\+\$")


def _requirement(wrong: ErrorDetails) -> str:
    """What the value must be; of a table as a whole, what its check said."""
    said, context = wrong["msg"], wrong.get("ctx", {})
    if wrong["type"] in _REQUIREMENTS:
        return _REQUIREMENTS[wrong["type"]]
    if wrong["type"] == "string_pattern_mismatch":
        characters = _CHARACTERS.fullmatch(context["pattern"])
        return "must be one line of text" if characters is None else f"must have no characters but {characters[1]}"
    if said.startswith(("Input should ", "String should ")):
        said = "must " + said.partition(" should ")[2]
    choices = re.findall(r"'([^']+)'", str(context.get("expected", "")))
    near = hint(wrong["input"], choices) if choices and isinstance(wrong["input"], str) else ""
    return said.removeprefix("Value error, ") + near


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
