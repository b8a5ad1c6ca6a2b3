"""The sources that `[simulation]` names: opened, read, checked, and matched with the parties of the study.

A source is a file beside the study or a table as `open_source` takes it. Somebody else may have written the study: its
files lie in its folder, its queries read nothing else and its URLs hold no password.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from comity.data import (
    Encoding,
    Finding,
    LocalRecords,
    Schema,
    Source,
    StreamedRecords,
    Tally,
    explain,
    explain_size,
    fits_in_memory,
    open_source,
)
from comity.data.schemas.check import MAX_TAIL
from comity.data.tables.encoded_cache import CachePlace
from comity.errors import DataError, StudyError
from comity.study.records.encoding import load_records

if TYPE_CHECKING:
    import pandas as pd

    from comity.study.study import Study

# One source.


def open_named(study: Study, value: Any, key: str) -> Source:
    """Open the source that a key of the study names."""
    return open_source(value, where=f"{study.where}: {key}", base=study.folder, confined=True)


def name_source(study: Study, value: Any) -> str:
    """What sentences call a source: its file or its URL."""
    if isinstance(value, Mapping):
        return str(study.folder / value["path"]) if "path" in value else str(value.get("url", "the query"))
    return str(study.folder / value)


def load_own_records(
    study: Study, value: Any, party: str, *, schema: Schema | None = None
) -> tuple[LocalRecords, pd.DataFrame | None, list[Finding]]:
    """Read and check every record of a party's own source, and find what looks wrong about them. Their frame is given
    too, unless they are read in blocks. `schema` is that of the party's own columns, where it has not all."""
    source, where = open_named(study, value, f"simulation.data.{party}"), name_source(study, value)
    records, frame = load_records(
        study.protocol,
        study.consortium,
        source,
        where=where,
        party=party,
        limit=int(study.simulation.memory * 2**30),
        # All that is checked below.
        also=(schema or study.schema).read_names,
        cache=CachePlace(study.folder),
    )
    if frame is not None:
        return records, frame, check_frame(study, frame, where, schema=schema, party=party)
    assert isinstance(records, StreamedRecords)
    declared, unit = study.method.declared_records(party), study.privacy.unit.value
    findings = explain_size(len(records), where, unit=unit, declared=declared)
    return records, None, [*findings, *_clipped(records.tally, where), _not_compared(study, where)]


def load_whole_frame(study: Study, value: Any, key: str, encoding: Encoding, *, owners: int = 1) -> pd.DataFrame:
    """Read all records of a source at once: they are split among several `owners`, or multiplied row by row. Refuse
    them where they take more than the memory of so many owners."""
    source, memory = open_named(study, value, key), study.simulation.memory
    if not fits_in_memory(source, encoding, int(memory * 2**30) * owners):
        why, instead = "its rows are multiplied with those of other owners in a common order", ""
        if owners > 1:
            why, instead = "its records are split among the parties", ", or name a source for each party"
        each = f" for each of {owners} parties" if owners > 1 else ""
        raise DataError(
            f"{name_source(study, value)}: takes more than simulation.memory = {memory:g} GB{each}, and it is read at "
            f"once because {why}; raise simulation.memory{instead}.",
            key="simulation.memory",
        )
    return source.read()


# What looks wrong about records.


def check_frame(
    study: Study, frame: pd.DataFrame, where: str, *, schema: Schema | None = None, party: str | None = None
) -> list[Finding]:
    """What `comity schema check` would say: about all records of the study, or about those of one party."""
    declared = None if party is None else study.method.declared_records(party)
    return explain(schema or study.schema, frame, where, unit=study.privacy.unit.value, records=declared)


def _clipped(tally: Tally, where: str) -> list[Finding]:
    sentence = (
        "{where}: {column}: {count} of {records} values are outside the schema's bounds and will be clipped; check the "
        "unit of measure, or agree on wider bounds from public knowledge."
    )
    return [
        Finding("warning", column, sentence.format(where=where, column=column, count=count, records=tally.records))
        for column, count in tally.clipped.items()
        if count > MAX_TAIL * tally.records
    ]


def _not_compared(study: Study, where: str) -> Finding:
    sentence = (
        f"{where}: takes more than simulation.memory = {study.simulation.memory:g} GB and is read in blocks: none of "
        "its records are held out for a test, and nothing is compared with a fit on all records."
    )
    return Finding("warning", "", sentence)


# Whose records they are: the parties that the study lists, or as many as it counts.


def listed_parties(study: Study) -> Iterable[str]:
    """The parties that the study names; none where it counts them."""
    return () if isinstance(study.parties, int) else study.parties


def require_records(study: Study, records: int) -> None:
    if not records:
        raise StudyError(
            f"{study.where}: simulation.data holds no records at all, and every ledger would pay for nothing; "
            "check that it names the right files",
            key="simulation.data",
        )


def require_parties(study: Study, found: Sequence[str], source: str) -> None:
    """Refuse data of other parties than the study lists, or of another number than it counts. `source` begins the
    sentence: what holds them."""
    if isinstance(study.parties, int):
        if len(found) != study.parties:
            raise StudyError(
                f"{study.where}: parties.count = {study.parties}, and {source} {len(found)} parties; set parties.count "
                f"to {len(found)}, or correct the data",
                key="parties.count",
            )
        return
    absent = [name for name in study.parties if name not in found]
    surplus = [name for name in found if name not in study.parties]
    if absent or surplus:
        wrong = f"nothing for {_few(absent)}" if absent else f"{_few(surplus)}, which the study does not list"
        raise StudyError(
            f"{study.where}: {source} {wrong}; every [parties.NAME] of the study needs its records and no other may "
            "have any. Correct [parties] or the data",
            key="parties",
        )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
