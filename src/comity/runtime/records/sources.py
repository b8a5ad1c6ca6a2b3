"""The records that `[simulation]` names: one source to be split among the parties, or one for each.

A source is a file beside the study or a table as `open_source` takes it. A study comes from somebody else: its files
lie in its folder, its queries read nothing else, its URLs hold no password, and no sentence here shows a value of the
table, because one may be a password in a wrong place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from comity.data import Schema
from comity.errors import StudyError

if TYPE_CHECKING:
    import pandas as pd

    from comity.data import Finding, Source
    from comity.runtime.study.study import Study

# Keys by which a table is known to name one source, unless these are the parties' own names.
_TELLING = {"source", "path", "url", "query", "table"}
# So many sentences about odd data are kept; a thousand files with one mistake are one mistake.
MOST_SENTENCES = 20


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


def opened(study: Study, value: Any, key: str) -> Source:
    from comity.data import open_source

    return open_source(value, where=f"{study.where}: {key}", base=study.folder, confined=True)


def read_records(study: Study, value: Any, key: str) -> pd.DataFrame:
    return opened(study, value, key).read()


def named(study: Study, value: Any) -> str:
    """What sentences call a source: its file or its URL."""
    if isinstance(value, Mapping):
        return str(study.folder / value["path"]) if "path" in value else str(value.get("url", "the query"))
    return str(study.folder / value)


def odd(
    study: Study, frame: pd.DataFrame, where: str, *, schema: Schema | None = None, party: str | None = None
) -> list[Finding]:
    """What the owner would be told by `comity schema check`: all records of the study, or those of one party."""
    declared = None if party is None else study.parameters.declared_records(party)
    from comity.data import explain

    return explain(schema or study.schema, frame, where, unit=study.privacy.unit.value, records=declared)


def sentences(findings: Iterable[Finding]) -> tuple[str, ...]:
    """The warnings among them, each once. What the schema handles as declared is no warning; errors were raised."""
    told = tuple(dict.fromkeys(one.sentence for one in findings if one.severity == "warning"))
    if len(told) <= MOST_SENTENCES:
        return told
    return (*told[:MOST_SENTENCES], f"and {len(told) - MOST_SENTENCES} more warnings of this kind about the data")
