"""Parties with their own columns of the same people: of one file whose columns are dealt to them, or a file of their
own."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from comity.data import Finding, Records
from comity.entropy import Stream
from comity.errors import DataError, StudyError
from comity.federation.protocol import Protocol
from comity.privacy.unit import Unit
from comity.runtime.records.encodings import encoded, encoding_of, party_encoding
from comity.runtime.records.identifiers import check_distinct, check_kind, check_shared
from comity.runtime.records.material import Material
from comity.runtime.records.naming_parties import listed, matching, some_records
from comity.runtime.records.own_records import whole_records
from comity.runtime.records.sources import named, odd, read_records, sentences
from comity.runtime.study.sources import is_one
from comity.runtime.study.study import Study


def columns_dealt(study: Study) -> Material:
    table = study.simulation
    dealt = is_one(table.data, listed(study))
    parties, rest, found = _one_file(study) if dealt else _own_files(study)
    if not _aligns(study):
        check_rows(study.protocol, parties, study.where)
    elif study.schema.identifier is not None:
        check_shared(parties, study.where, study.schema.identifier)
    if table.test is not None:
        rest = read_records(study, table.test, "simulation.test")
    test = None if rest is None else encoded(study.protocol, rest, f"{study.where}: simulation")
    return Material(parties, test, findings=sentences(found))


def _one_file(study: Study) -> tuple[dict[str, Records], pd.DataFrame | None, list[Finding]]:
    """Every party's columns, whole records that are held out, and what is odd."""
    table, names = study.simulation, tuple(study.consortium.parties)
    if table.split != "by-features":
        raise StudyError(
            f'{study.where}: simulation.split = "{table.split}" deals whole records, and {study.protocol_name} '
            'gives parties different columns; choose "by-features"',
            key="simulation.split",
        )
    share = table.holdout if table.test is None else None
    file = named(study, table.data)
    encoding = encoding_of(study.protocol, file, None)
    frame = whole_records(study, table.data, "simulation.data", encoding, owners=len(names))
    some_records(study, len(frame))
    _check_people(study, frame, file)
    parties, rest = deal_columns(study.protocol, frame, names, holdout=share, name=study.hash, where=file)
    return parties, rest, odd(study, frame, file)


def _own_files(study: Study) -> tuple[dict[str, Records], pd.DataFrame | None, list[Finding]]:
    """Every file has rows of its own, so that no record can be held out of all of them at once."""
    data = study.simulation.data
    matching(study, list(data), "simulation.data has")
    parties: dict[str, Records] = {}
    found: list[Finding] = []
    for name in study.consortium.parties:
        where, encoding = named(study, data[name]), party_encoding(study.protocol, name)
        frame = whole_records(study, data[name], f"simulation.data.{name}", encoding)
        _check_people(study, frame, where)
        parties[name] = encoding.encode(frame, where=where).records
        found += odd(study, frame, where, schema=encoding.schema, party=name)
    if study.privacy.unit is not Unit.PARTY:
        some_records(study, sum(map(len, parties.values())))
    return parties, None, found


def check_rows(protocol: Protocol, parties: Mapping[str, Records], where: str) -> None:
    """Rows that are not aligned must stand in one order already: as many at every party, and no more than are laid out
    for. The run would find it too, but only after its parties have reserved."""
    sizes = {len(records) for records in parties.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise DataError(
            f"{where}: without an alignment all parties need the same rows in the same order, and at least one; their "
            "numbers of records differ or are zero. Declare [identifier] in the schema to align them",
            key="identifier",
        )
    most = getattr(protocol, "most", None)
    if most is not None and max(sizes) > most:
        raise StudyError(
            f"{where}: the products are laid out for {most} rows, found {max(sizes)}; raise "
            f"{protocol.name}.rows_at_most",
            key=f"{protocol.name}.rows_at_most",
        )


def deal_columns(
    protocol: Protocol, frame: pd.DataFrame, parties: tuple[str, ...], *, holdout: float | None, name: str, where: str
) -> tuple[dict[str, Records], pd.DataFrame | None]:
    """Every party's columns of the records that are kept, and whole records that were held out by public chance."""
    tested: pd.DataFrame | None = None
    if holdout is not None:
        order = Stream.public(name, "holdout").permutation(len(frame))
        count = round(len(frame) * holdout)
        if not 0 < count < len(frame):
            raise StudyError(
                f"{where}: too few records to hold a share of {holdout} back; give simulation.test",
                key="simulation.holdout",
            )
        tested, frame = frame.iloc[np.sort(order[:count])], frame.iloc[np.sort(order[count:])]
    return {party: party_encoding(protocol, party).encode(frame, where=where).records for party in parties}, tested


def _check_people(study: Study, frame: pd.DataFrame, where: str) -> None:
    """Where rows are aligned, every file has one record per person, whose identifier reads the same in all files."""
    name = study.schema.identifier
    if name is not None and name in frame.columns and _aligns(study):
        check_kind(frame[name], where)
        check_distinct(frame[name], where)


def _aligns(study: Study) -> bool:
    return getattr(study.protocol, "alignment", "none") != "none"
