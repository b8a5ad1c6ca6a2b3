"""The records of one simulated owner: in memory where they fit, else read in blocks whenever a step sums over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comity.data import Finding, Held, StreamedRecords, Tally, explain_size, fits
from comity.data.check import TAIL
from comity.runtime.simulate import encoded, encoding_of
from comity.runtime.simulation_data import named, odd, opened

if TYPE_CHECKING:
    from comity.runtime.study import Study


def own_records(study: Study, value: Any, party: str) -> tuple[Held, list[Finding]]:
    """Every record of the source that `value` names is read and checked; what is odd about them is told."""
    source, where = opened(study, value, f"simulation.data.{party}"), named(study, value)
    encoding, limit = encoding_of(study.protocol, where, None), int(study.simulation.memory * 2**30)
    if fits(source, encoding, limit):
        frame = source.read()
        return encoded(study.protocol, frame, where), odd(study, frame, where, party=party)
    streamed = StreamedRecords.checked(source, encoding, where=where, limit=limit)
    if not study.protocol.streams(study.consortium):
        streamed.require_memory()
    declared, unit = study.parameters.declared_records(party), study.privacy.unit.value
    told = explain_size(len(streamed), where, unit=unit, declared=declared)
    return streamed, [*told, *_clipped(streamed.tally, where), _without_comparison(study, where)]


def _clipped(tally: Tally, where: str) -> list[Finding]:
    sentence = (
        "{where}: {column}: {count} of {records} values are outside the schema's bounds and will be clipped; check the "
        "unit of measure, or agree on wider bounds from public knowledge."
    )
    return [
        Finding("warning", column, sentence.format(where=where, column=column, count=count, records=tally.records))
        for column, count in tally.clipped.items()
        if count > TAIL * tally.records
    ]


def _without_comparison(study: Study, where: str) -> Finding:
    sentence = (
        f"{where}: takes more than simulation.memory = {study.simulation.memory:g} GB and is read in blocks: none of "
        "its records are held out for a test, and nothing is compared with a fit on all records."
    )
    return Finding("warning", "", sentence)
