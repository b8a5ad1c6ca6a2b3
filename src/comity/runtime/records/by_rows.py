"""Parties with whole records each: of one file whose rows are dealt to them, or a file of their own."""

from __future__ import annotations

from comity.data import Finding, Held, explain_size
from comity.errors import StudyError
from comity.privacy.unit import Unit
from comity.runtime.records.dealing import rows_of_parties
from comity.runtime.records.encodings import encoded, encoding_of
from comity.runtime.records.holding_out import held_out, rows_of
from comity.runtime.records.material import Material
from comity.runtime.records.naming_parties import listed, matching, some_records
from comity.runtime.records.own_records import own_records, whole_records
from comity.runtime.records.sources import named, odd, read_records, sentences
from comity.runtime.study.sources import is_one
from comity.runtime.study.study import Study


def rows_dealt(study: Study) -> Material:
    table = study.simulation
    parties, found = _one_file(study) if is_one(table.data, listed(study)) else _own_files(study)
    if table.test is None:
        kept, tested = held_out(parties, share=table.holdout, name=study.hash)
        return Material(kept, tested, findings=sentences(found))
    frame, where = read_records(study, table.test, "simulation.test"), named(study, table.test)
    if frame.empty:
        raise StudyError(
            f"{study.where}: simulation.test: {where} holds no records; give some, or leave the key out to hold some "
            "back",
            key="simulation.test",
        )
    return Material(parties, encoded(study.protocol, frame, where), findings=sentences(found))


def _one_file(study: Study) -> tuple[dict[str, Held], list[Finding]]:
    where, owners = named(study, study.simulation.data), study.consortium.size
    encoding = encoding_of(study.protocol, where, None)
    frame = whole_records(study, study.simulation.data, "simulation.data", encoding, owners=owners)
    some_records(study, len(frame))
    whole = encoding.encode(frame, where=where).records
    parties: dict[str, Held] = {name: rows_of(whole, rows) for name, rows in rows_of_parties(study, frame).items()}
    found, unit = odd(study, frame, where), study.privacy.unit.value
    for name, records in parties.items():
        declared = study.parameters.declared_records(name)
        found += explain_size(len(records), f"{where}: {name}", unit=unit, declared=declared)
    return parties, found


def _own_files(study: Study) -> tuple[dict[str, Held], list[Finding]]:
    data = study.simulation.data
    matching(study, list(data), "simulation.data has")
    parties: dict[str, Held] = {}
    found: list[Finding] = []
    for name, value in data.items():
        parties[name], told = own_records(study, value, name)
        found += told
    if study.privacy.unit is not Unit.PARTY:
        some_records(study, sum(map(len, parties.values())))
    return parties, found
