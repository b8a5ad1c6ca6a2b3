"""Parties with their own columns of the same people: of one file whose columns are dealt to them, or a file of their
own."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from comity.data import Finding, Records
from comity.data.schemas.reading import canonical_id
from comity.errors import DataError, StudyError
from comity.federation.protocol import Protocol
from comity.privacy.unit import Unit
from comity.study.records.encodings import encoded, encoding_of, party_encoding
from comity.study.records.holding_out import Rows, holdout_people, holdout_rows, rows_of, without
from comity.study.records.identifiers import check_distinct, check_kind, check_shared
from comity.study.records.material import Material
from comity.study.records.naming_parties import listed, matching, some_records
from comity.study.records.own_records import whole_records
from comity.study.records.sources import named, odd, read_records, sentences
from comity.study.sources import is_one
from comity.study.study import Study


def columns_dealt(study: Study) -> Material:
    table = study.simulation
    frames, found = _one_file(study) if is_one(table.data, listed(study)) else _own_files(study)
    parties = {
        party: party_encoding(study.protocol, party).encode(frame, where=where).records
        for party, (frame, where) in frames.items()
    }
    if not _aligns(study):
        check_rows(parties, study.where)
    elif study.schema.identifier is not None:
        check_shared(parties, study.where, study.schema.identifier)
    if table.test is None:
        held_out = _held_out(study, parties)
        rest = _whole_records(study, {party: frame for party, (frame, _) in frames.items()}, held_out)
        parties = {
            party: rows_of(records, without(np.arange(len(records)), held_out[party]))
            for party, records in parties.items()
        }
    else:
        rest = read_records(study, table.test, "simulation.test")
    if not _aligns(study):
        check_most(study.protocol, parties, study.where)
    return Material(parties, encoded(study.protocol, rest, f"{study.where}: simulation"), findings=sentences(found))


def _one_file(study: Study) -> tuple[dict[str, tuple[pd.DataFrame, str]], list[Finding]]:
    """The table that has every party's columns, for each of them, with its name; and what is odd."""
    table, names = study.simulation, tuple(study.consortium.parties)
    if table.split != "by-features":
        raise StudyError(
            f'{study.where}: simulation.split = "{table.split}" deals whole records, and {study.protocol_name} '
            'gives parties different columns; choose "by-features"',
            key="simulation.split",
        )
    file = named(study, table.data)
    encoding = encoding_of(study.protocol, file, None)
    frame = whole_records(study, table.data, "simulation.data", encoding, owners=len(names))
    some_records(study, len(frame))
    _check_people(study, frame, file)
    return dict.fromkeys(names, (frame, file)), odd(study, frame, file)


def _own_files(study: Study) -> tuple[dict[str, tuple[pd.DataFrame, str]], list[Finding]]:
    """Each party's own table, with its name; and what is odd."""
    data = study.simulation.data
    matching(study, list(data), "simulation.data has")
    frames: dict[str, tuple[pd.DataFrame, str]] = {}
    found: list[Finding] = []
    for name in study.consortium.parties:
        where, encoding = named(study, data[name]), party_encoding(study.protocol, name)
        frame = whole_records(study, data[name], f"simulation.data.{name}", encoding)
        _check_people(study, frame, where)
        frames[name] = frame, where
        found += odd(study, frame, where, schema=encoding.schema, party=name)
    if study.privacy.unit is not Unit.PARTY:
        some_records(study, sum(len(frame) for frame, _ in frames.values()))
    return frames, found


def _held_out(study: Study, parties: Mapping[str, Records]) -> dict[str, Rows]:
    """The rows of each party that are held out: of the same people, in the same order. Where rows are aligned these are
    people whom all parties have, by their identifiers; otherwise rows by their place."""
    table = study.simulation
    if _aligns(study):
        places = {party: _places(records) for party, records in parties.items()}
        first = next(iter(places.values()))
        shared = [one for one in first if all(one in found for found in places.values())]
        chosen = holdout_people(shared, share=table.holdout, split_seed=table.split_seed)
        people = [one for one in shared if one in chosen]
        rows = {party: np.array([found[one] for one in people], np.int64) for party, found in places.items()}
        known, count = len(shared), len(people)
    else:
        known = len(next(iter(parties.values())))
        by_place = holdout_rows(known, share=table.holdout, split_seed=table.split_seed)
        rows, count = dict.fromkeys(parties, by_place), len(by_place)
    if not 0 < count < known:
        raise StudyError(
            f"{study.where}: too few records to hold a share of {table.holdout} back; give simulation.test",
            key="simulation.holdout",
        )
    return rows


def _whole_records(study: Study, frames: Mapping[str, pd.DataFrame], rows: Mapping[str, Rows]) -> pd.DataFrame:
    """The columns of all parties side by side, over these rows of each."""
    parts: list[pd.DataFrame] = []
    for party, frame in frames.items():
        own = party_encoding(study.protocol, party).schema
        names = [*own.names, *(() if own.target is None else (own.target.name,))]
        if not parts and own.identifier is not None and own.identifier in frame.columns:
            names = [own.identifier, *names]
        parts.append(frame[names].iloc[rows[party]].reset_index(drop=True))
    return pd.concat(parts, axis=1)


def _places(records: Records) -> dict[str, int]:
    """The row of each person."""
    assert records.ids is not None
    return {canonical_id(one): row for row, one in enumerate(records.ids)}


def check_rows(parties: Mapping[str, Records], where: str) -> None:
    """Rows that are not aligned must be in one order already: as many at every party. The run would find it too, but
    only after its parties have reserved."""
    sizes = {len(records) for records in parties.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise DataError(
            f"{where}: without an alignment all parties need the same rows in the same order, and at least one; their "
            "numbers of records differ or are zero. Declare [identifier] in the schema to align them",
            key="identifier",
        )


def check_most(protocol: Protocol, parties: Mapping[str, Records], where: str) -> None:
    """No more rows than the products have room for."""
    most, found = getattr(protocol, "max_rows", None), max(map(len, parties.values()))
    if most is not None and found > most:
        raise StudyError(
            f"{where}: the products have room for {most} rows, found {found}; raise {protocol.name}.max_rows",
            key=f"{protocol.name}.max_rows",
        )


def _check_people(study: Study, frame: pd.DataFrame, where: str) -> None:
    """Where rows are aligned, every file has one record per person, whose identifier reads the same in all files."""
    name = study.schema.identifier
    if name is not None and name in frame.columns and _aligns(study):
        check_kind(frame[name], where)
        check_distinct(frame[name], where)


def _aligns(study: Study) -> bool:
    return getattr(study.protocol, "alignment", "none") != "none"
