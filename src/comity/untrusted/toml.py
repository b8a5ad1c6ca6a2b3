"""TOML that somebody wrote: read in one place, so that every file that can't be used ends in one sentence.

The parser of the standard library raises `RecursionError` for deep arrays and a plain `ValueError` for long integers,
and accepts what later code can't handle: tables of any depth, integers of any size. All of these are bad input here.
"""

from __future__ import annotations

import tomllib
from typing import Any, Final

from comity.errors import BadInput, StudyError

MAX_DEPTH: Final = 24
_INTEGERS: Final = range(-(1 << 63), 1 << 63)


def parse_toml(text: str, where: str, error: type[BadInput] = StudyError) -> dict[str, Any]:
    """The tables of a TOML text. Whatever is wrong with it is an `error` that begins with `where`."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as wrong:
        raise error(f"{where}: not valid TOML: {wrong}") from wrong
    except RecursionError as wrong:
        raise error(f"{where}: not valid TOML: tables or lists are nested more than {MAX_DEPTH} deep") from wrong
    except ValueError as wrong:
        # Of numbers and dates that the grammar allows and Python does not.
        raise error(
            f"{where}: not valid TOML: a number or a date is out of range; integers have at most 64 bits"
        ) from wrong
    _check_values(tables, where, error)
    return tables


def _check_values(tables: dict[str, Any], where: str, error: type[BadInput]) -> None:
    """Refuse depths and integers that later code can't handle, without recursion."""
    waiting: list[tuple[Any, str, int]] = [(tables, "", 0)]
    while waiting:
        value, key, depth = waiting.pop()
        if isinstance(value, dict | list):
            if depth > MAX_DEPTH:
                raise error(f"{where}: {key}: tables or lists are nested more than {MAX_DEPTH} deep", key=key)
            inner = value.items() if isinstance(value, dict) else ((None, one) for one in value)
            for name, one in inner:
                dotted = key if name is None else f"{key}.{name}" if key else name
                waiting.append((one, dotted[:200], depth + 1))
        elif isinstance(value, int) and value not in _INTEGERS:
            raise error(f"{where}: {key}: expected an integer of at most 64 bits, found a larger one", key=key)
