"""TOML that a person or another party wrote: every text that can't be used is one kind of error.

The parser of the standard library raises `RecursionError` for deep arrays and a plain `ValueError` for long integers,
and accepts what later code can't handle: tables of any depth, integers of any size. All of these are `BadToml` here.
"""

from __future__ import annotations

import tomllib
from typing import Any, Final

from comity.errors import BadInput, StudyError

MAX_DEPTH: Final = 24
_INTEGERS: Final = range(-(1 << 63), 1 << 63)
_TOO_DEEP: Final = f"tables or lists are nested more than {MAX_DEPTH} deep"


class BadToml(ValueError):
    """The sentence says what is wrong with the text, and where."""


def read_tables(text: str) -> dict[str, Any]:
    """The tables of a TOML text; `BadToml` for anything that is wrong with it."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadToml(str(error)) from error
    except RecursionError as error:
        raise BadToml(_TOO_DEEP) from error
    except ValueError as error:
        # The grammar allows numbers and dates that Python does not.
        raise BadToml("a number or a date is out of range; integers have at most 64 bits") from error
    _check_values(tables)
    return tables


def parse_toml(text: str, where: str, error: type[BadInput] = StudyError) -> dict[str, Any]:
    """The tables of a TOML text. Raises `error`, with a sentence that begins with `where`, if the text is wrong."""
    try:
        return read_tables(text)
    except BadToml as wrong:
        raise error(f"{where}: not valid TOML: {wrong}") from wrong


def _check_values(tables: dict[str, Any]) -> None:
    """Refuse depths and integers that later code can't handle, without recursion."""
    waiting: list[tuple[Any, str, int]] = [(tables, "", 0)]
    while waiting:
        value, key, depth = waiting.pop()
        if isinstance(value, dict | list):
            if depth > MAX_DEPTH:
                raise BadToml(f"{key}: {_TOO_DEEP}")
            inner = value.items() if isinstance(value, dict) else ((None, one) for one in value)
            for name, one in inner:
                dotted = key if name is None else f"{key}.{name}" if key else name
                waiting.append((one, dotted[:100], depth + 1))
        elif isinstance(value, int) and value not in _INTEGERS:
            raise BadToml(f"{key}: expected an integer of at most 64 bits, found a larger one")
