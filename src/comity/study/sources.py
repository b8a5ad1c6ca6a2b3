"""Which sources `[simulation]` names: one to be split among the parties, or one for each. No file is looked for here.

No sentence shows a value of the table, because one may be a password in a wrong place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from comity.errors import StudyError

# Keys by which a table is known to name one source, unless these are the parties' own names.
_TELLING = {"source", "path", "url", "query", "table"}


def is_one(data: Any, parties: Iterable[str]) -> bool:
    """Whether `data` names one source for all parties."""
    return not isinstance(data, Mapping) or (set(data) != set(parties) and bool(_TELLING & set(data)))


def check_data(data: Any, test: Any, parties: Iterable[str], where: str) -> None:
    """Every source is of a known form. No file is looked for: a plan needs none."""
    from comity.data.tables.sources import check_table

    for key, value in _sources(data, test, parties):
        if isinstance(value, Mapping):
            check_table(value, f"{where}: {key}")
        elif not isinstance(value, str):
            raise StudyError(
                f"{where}: {key}: expected a file or a table with source = ..., found {type(value).__name__}; write it "
                "in quotes, or as a table",
                key=key,
            )


def _sources(data: Any, test: Any, parties: Iterable[str]) -> Iterator[tuple[str, Any]]:
    if data is not None and is_one(data, parties):
        yield "simulation.data", data
    elif data is not None:
        yield from ((f"simulation.data.{name}", value) for name, value in data.items())
    if test is not None:
        yield "simulation.test", test
