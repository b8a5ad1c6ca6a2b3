"""Reading the records that `[simulation]` names, and telling what is odd about them.

A source is a file beside the study or a table as `open_source` takes it. A study comes from somebody else: its files
lie in its folder, its queries read nothing else and its URLs hold no password.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from comity.data import Schema

if TYPE_CHECKING:
    import pandas as pd

    from comity.data import Finding, Source
    from comity.study.study import Study

# So many sentences about odd data are kept; a thousand files with one mistake are one mistake.
MOST_SENTENCES = 20


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
    """What `comity schema check` would say: about all records of the study, or about those of one party."""
    declared = None if party is None else study.method.declared_records(party)
    from comity.data import explain

    return explain(schema or study.schema, frame, where, unit=study.privacy.unit.value, records=declared)


def sentences(findings: Iterable[Finding]) -> tuple[str, ...]:
    """The warnings among them, each once. What the schema handles as declared is no warning; errors were raised."""
    told = tuple(dict.fromkeys(one.sentence for one in findings if one.severity == "warning"))
    if len(told) <= MOST_SENTENCES:
        return told
    return (*told[:MOST_SENTENCES], f"and {len(told) - MOST_SENTENCES} more warnings of this kind about the data")
