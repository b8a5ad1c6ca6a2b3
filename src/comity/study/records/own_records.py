"""The records that a simulation reads: one owner's own, or all of them at once for a study that deals them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comity.data import Encoding, Finding, LocalRecords, StreamedRecords, Tally, explain_size, fits_in_memory
from comity.data.schemas.check import MAX_TAIL
from comity.errors import DataError
from comity.study.records.held_records import held_records
from comity.study.records.sources import named, odd, opened

if TYPE_CHECKING:
    import pandas as pd

    from comity.study.study import Study


def own_records(study: Study, value: Any, party: str) -> tuple[LocalRecords, list[Finding]]:
    """Every record of the source that `value` names is read and checked; what is odd about them is told."""
    source, where = opened(study, value, f"simulation.data.{party}"), named(study, value)
    limit = int(study.simulation.memory * 2**30)
    records, frame = held_records(study.protocol, study.consortium, source, where=where, party=party, limit=limit)
    if frame is not None:
        return records, odd(study, frame, where, party=party)
    assert isinstance(records, StreamedRecords)
    declared, unit = study.method.declared_records(party), study.privacy.unit.value
    told = explain_size(len(records), where, unit=unit, declared=declared)
    return records, [*told, *_clipped(records.tally, where), _without_comparison(study, where)]


def whole_records(study: Study, value: Any, key: str, encoding: Encoding, *, owners: int = 1) -> pd.DataFrame:
    """All records of a source, for a study that deals them to several `owners` or multiplies columns row by row.
    Refused where they take more than the memory of so many owners."""
    source, memory = opened(study, value, key), study.simulation.memory
    if not fits_in_memory(source, encoding, int(memory * 2**30) * owners):
        why, instead = "its rows are multiplied with those of other owners in a common order", ""
        if owners > 1:
            why, instead = "its records are dealt to the parties", ", or give each party a source of its own"
        each = f" for each of {owners} parties" if owners > 1 else ""
        raise DataError(
            f"{named(study, value)}: takes more than simulation.memory = {memory:g} GB{each}, and it is read at once "
            f"because {why}; raise simulation.memory{instead}.",
            key="simulation.memory",
        )
    return source.read()


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


def _without_comparison(study: Study, where: str) -> Finding:
    sentence = (
        f"{where}: takes more than simulation.memory = {study.simulation.memory:g} GB and is read in blocks: none of "
        "its records are held out for a test, and nothing is compared with a fit on all records."
    )
    return Finding("warning", "", sentence)
