"""Parties with whole records each: of one file whose rows are dealt to them, or a file of their own."""

from __future__ import annotations

import numpy as np

from comity.data import Finding, LocalRecords, Records, explain_size
from comity.errors import StudyError
from comity.privacy.unit import Unit
from comity.study.records.dealing import deal_rows
from comity.study.records.encodings import encoded, encoding_of
from comity.study.records.holding_out import concatenated, holdout_rows, rows_of, without
from comity.study.records.material import Material
from comity.study.records.naming_parties import listed, matching, some_records
from comity.study.records.own_records import own_records, whole_records
from comity.study.records.sources import named, odd, read_records, sentences
from comity.study.sources import is_one
from comity.study.study import Study


def rows_dealt(study: Study) -> Material:
    table = study.simulation
    parties, held_out, found = _one_file(study) if is_one(table.data, listed(study)) else _own_files(study)
    if table.test is None:
        return Material(parties, concatenated(held_out), findings=sentences(found))
    frame, where = read_records(study, table.test, "simulation.test"), named(study, table.test)
    if frame.empty:
        raise StudyError(
            f"{study.where}: simulation.test: {where} holds no records; give some, or leave the key out to hold some "
            "back",
            key="simulation.test",
        )
    return Material(parties, encoded(study.protocol, frame, where), findings=sentences(found))


def _one_file(study: Study) -> tuple[dict[str, LocalRecords], list[Records], list[Finding]]:
    where, owners = named(study, study.simulation.data), study.consortium.size
    encoding = encoding_of(study.protocol, where, None)
    frame = whole_records(study, study.simulation.data, "simulation.data", encoding, owners=owners)
    some_records(study, len(frame))
    whole = encoding.encode(frame, where=where).records
    dealt, held_out = deal_rows(study, frame)
    found, unit = odd(study, frame, where), study.privacy.unit.value
    for name, rows in dealt.items():
        declared = study.method.declared_records(name)
        found += explain_size(len(rows), f"{where}: {name}", unit=unit, declared=declared)
    parties: dict[str, LocalRecords] = {name: rows_of(whole, without(rows, held_out)) for name, rows in dealt.items()}
    return parties, [rows_of(whole, held_out)], found


def _own_files(study: Study) -> tuple[dict[str, LocalRecords], list[Records], list[Finding]]:
    """Of records that are read in blocks none is held out."""
    table = study.simulation
    matching(study, list(table.data), "simulation.data has")
    parties: dict[str, LocalRecords] = {}
    tested: list[Records] = []
    found: list[Finding] = []
    for name, value in table.data.items():
        records, told = own_records(study, value, name)
        found += told
        if isinstance(records, Records) and table.test is None:
            held_out = holdout_rows(len(records), share=table.holdout, split_seed=table.split_seed, group=name)
            tested.append(rows_of(records, held_out))
            records = rows_of(records, without(np.arange(len(records)), held_out))
        parties[name] = records
    if study.privacy.unit is not Unit.PARTY:
        some_records(study, sum(map(len, [*parties.values(), *tested])))
    return parties, tested, found
