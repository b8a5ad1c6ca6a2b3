"""Parties with their own columns of the same people: of one file whose columns are split, or a file for each party.

Identifiers are checked while files are read, before a ledger exists and before anything is drawn. Sites check theirs
again when rows are aligned (`methods.by_columns.alignment`), but by then the run has begun, and an empty intersection
shows only once pseudonyms are matched. Here one person has all the files, so sentences name them. They show no
identifier: none enters a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from comity.crypto.psi_keyed import match_lists
from comity.data import Finding, LocalRecords, Records, StreamedRecords, fits_in_memory
from comity.data.schemas.reading import canonical_id, read_ids
from comity.entropy import fresh_seed
from comity.errors import DataError, StudyError
from comity.federation.protocol import Protocol
from comity.methods.by_columns.token_list import TokenList, count_buckets, id_blocks
from comity.privacy.unit import Unit
from comity.study.records.encoding import encode_records, encoding_of
from comity.study.records.groups import Groups, label_groups
from comity.study.records.sources import (
    check_frame,
    listed_parties,
    load_own_records,
    load_whole_frame,
    name_source,
    open_named,
    require_parties,
    require_records,
)
from comity.study.records.splitting import Rows, exclude_rows, holdout_people, holdout_rows, select_rows
from comity.study.study import Study
from comity.study.tables import is_one_source

_KEY = "identifier.name"


def split_columns(study: Study) -> tuple[dict[str, LocalRecords], Records | None, Groups, list[Finding]]:
    """The columns of each party, whole records to test on with their subgroups, and what looks wrong about all of
    them."""
    table = study.simulation
    one_file = is_one_source(table.data, listed_parties(study))
    if not one_file and study.protocol.streams(study.consortium) and not _fit_in_memory(study):
        return _read_in_blocks(study)
    frames, findings = _load_one_file(study) if one_file else _load_own_files(study)
    parties = {
        party: encode_records(study.protocol, frame, where, party=party) for party, (frame, where) in frames.items()
    }
    if not _aligns(study):
        check_rows(parties, study.where)
    elif study.schema.identifier is not None:
        check_shared(parties, study.where, study.schema.identifier)
    if table.test is None:
        held_out = _held_out(study, parties)
        test = _join_columns(study, {party: frame for party, (frame, _) in frames.items()}, held_out)
        parties = {
            party: select_rows(records, exclude_rows(np.arange(len(records)), held_out[party]))
            for party, records in parties.items()
        }
    else:
        test = open_named(study, table.test, "simulation.test").read()
    if not _aligns(study):
        check_max_rows(study.protocol, parties, study.where)
    where = f"{study.where}: simulation"
    groups = label_groups(study.schema, table.evaluate_by, test, where)
    return dict(parties), encode_records(study.protocol, test, where), groups, findings


def _fit_in_memory(study: Study) -> bool:
    """Whether the records of each party do."""
    require_parties(study, list(study.simulation.data), "simulation.data has")
    limit = int(study.simulation.memory * 2**30)
    return all(
        fits_in_memory(
            open_named(study, value, f"simulation.data.{name}"),
            encoding_of(study.protocol, name_source(study, value), name),
            limit,
        )
        for name, value in study.simulation.data.items()
    )


def _read_in_blocks(study: Study) -> tuple[dict[str, LocalRecords], Records | None, Groups, list[Finding]]:
    """The same where a party's records do not fit into memory. No row is held out of any party then."""
    table, where = study.simulation, f"{study.where}: simulation"
    parties: dict[str, LocalRecords] = {}
    findings: list[Finding] = []
    for name in study.consortium.parties:
        schema = encoding_of(study.protocol, study.where, name).schema
        parties[name], frame, own = load_own_records(study, table.data[name], name, schema=schema)
        findings += own
        if frame is not None:
            _check_people(study, frame, name_source(study, table.data[name]))
    if _aligns(study):
        named = {party: name_source(study, table.data[party]) for party in parties}
        check_people_in_blocks(parties, named, study.where, str(study.schema.identifier))
    else:
        check_rows(parties, study.where)
        check_max_rows(study.protocol, parties, study.where)
    if table.test is None:
        return parties, None, Groups(), findings
    test = open_named(study, table.test, "simulation.test").read()
    groups = label_groups(study.schema, table.evaluate_by, test, where)
    return parties, encode_records(study.protocol, test, where), groups, findings


def check_people_in_blocks(
    parties: Mapping[str, LocalRecords], names: Mapping[str, str], where: str, column: str
) -> None:
    """One record per person, and at least one person whom all parties hold, as an alignment finds them: by pseudonyms
    under a key that is used for nothing else."""
    seed, buckets = fresh_seed(), count_buckets(max(map(len, parties.values())))
    lists: dict[str, TokenList] = {}
    for party, records in parties.items():
        file = records.open_file() if isinstance(records, StreamedRecords) else None
        try:
            lists[party] = TokenList.make(seed, id_blocks(records), TokenList.empty(buckets, file))
        except DataError as error:
            raise DataError(f"{names[party]}: column {column!r}: {error}", key=error.key) from None
    for number in range(buckets):
        tokens = {party: one.bucket(number)[0] for party, one in lists.items()}
        if len(next(iter(match_lists(tokens).values()))):
            return
    raise DataError(
        f"{where}: the parties share nobody: no value of {column!r} is held by all of them; check that the column "
        "means the same in every file and is written in the same way",
        code="empty-intersection",
        key=_KEY,
    )


def _load_one_file(study: Study) -> tuple[dict[str, tuple[pd.DataFrame, str]], list[Finding]]:
    """The table that has every party's columns, for each of them, with its name; and what looks wrong."""
    table, names = study.simulation, tuple(study.consortium.parties)
    if table.split != "by-features":
        raise StudyError(
            f'{study.where}: simulation.split = "{table.split}" splits whole records, and {study.protocol_name} '
            'gives parties different columns; choose "by-features"',
            key="simulation.split",
        )
    file = name_source(study, table.data)
    encoding = encoding_of(study.protocol, file, None)
    frame = load_whole_frame(study, table.data, "simulation.data", encoding, owners=len(names))
    require_records(study, len(frame))
    _check_people(study, frame, file)
    return dict.fromkeys(names, (frame, file)), check_frame(study, frame, file)


def _load_own_files(study: Study) -> tuple[dict[str, tuple[pd.DataFrame, str]], list[Finding]]:
    """Each party's table, with its name; and what looks wrong."""
    data = study.simulation.data
    require_parties(study, list(data), "simulation.data has")
    frames: dict[str, tuple[pd.DataFrame, str]] = {}
    findings: list[Finding] = []
    for name in study.consortium.parties:
        where = name_source(study, data[name])
        encoding = encoding_of(study.protocol, where, name)
        frame = load_whole_frame(study, data[name], f"simulation.data.{name}", encoding)
        _check_people(study, frame, where)
        frames[name] = frame, where
        findings += check_frame(study, frame, where, schema=encoding.schema, party=name)
    if study.privacy.unit is not Unit.PARTY:
        require_records(study, sum(len(frame) for frame, _ in frames.values()))
    return frames, findings


def _held_out(study: Study, parties: Mapping[str, Records]) -> dict[str, Rows]:
    """The rows of each party that are held out: of the same people, in the same order. Where rows are aligned these are
    people whom all parties have, found by their identifiers; otherwise rows by their place."""
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


def _join_columns(study: Study, frames: Mapping[str, pd.DataFrame], rows: Mapping[str, Rows]) -> pd.DataFrame:
    """The columns of all parties side by side, over these rows of each."""
    parts: list[pd.DataFrame] = []
    for party, frame in frames.items():
        own = encoding_of(study.protocol, study.where, party).schema
        names = [*own.names, *(() if own.target is None else (own.target.name,))]
        if not parts and own.identifier is not None and own.identifier in frame.columns:
            names = [own.identifier, *names]
        parts.append(frame[names].iloc[rows[party]].reset_index(drop=True))
    return pd.concat(parts, axis=1)


def _places(records: Records) -> dict[str, int]:
    """The row of each person."""
    assert records.ids is not None
    return {canonical_id(one): row for row, one in enumerate(records.ids)}


def check_rows(parties: Mapping[str, LocalRecords], where: str) -> None:
    """Rows that are not aligned must be in one order already: as many at every party. The run would find it too, but
    only after its parties have reserved the loss."""
    sizes = {len(records) for records in parties.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise DataError(
            f"{where}: without an alignment all parties need the same rows in the same order, and at least one; their "
            "numbers of records differ or are zero. Declare [identifier] in the schema to align them",
            key="identifier",
        )


def check_max_rows(protocol: Protocol, parties: Mapping[str, LocalRecords], where: str) -> None:
    """Refuse more rows than the products have room for."""
    most, rows = getattr(protocol, "max_rows", None), max(map(len, parties.values()))
    if most is not None and rows > most:
        raise StudyError(
            f"{where}: the products have room for {most} rows, found {rows}; raise {protocol.name}.max_rows",
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


def check_kind(series: pd.Series, where: str) -> None:
    """An identifier is a text or a whole number: two files may write anything else in two ways."""
    for row, value in enumerate(series.astype(object)):
        missing = value is None or value is pd.NA or (isinstance(value, float) and value != value)
        # Missing ones are the encoding's to refuse.
        if not missing and not _is_identifier(value):
            raise DataError(
                f"{where}: column {str(series.name)!r} identifies records by texts or whole numbers, record {row + 1} "
                f"has a {type(value).__name__}; write the column as text",
                key=_KEY,
            )


def check_distinct(series: pd.Series, where: str) -> None:
    """One record per person: a second one would be a second row of the same unit."""
    seen: dict[str, int] = {}
    ids, missing = read_ids(series)
    for row, one in enumerate(ids):
        first = row if missing[row] else seen.setdefault(canonical_id(one), row)
        if first != row:
            raise DataError(
                f"{where}: column {str(series.name)!r} has the same identifier in records {first + 1} and {row + 1}; "
                "keep one record per person",
                key=_KEY,
            )


def check_shared(parties: Mapping[str, Records], where: str, column: str) -> None:
    """At least one person is held by all parties."""
    ids_of = {
        party: set() if records.ids is None else {canonical_id(one) for one in records.ids}
        for party, records in parties.items()
    }
    if set.intersection(*ids_of.values()):
        return
    forms = "; ".join(f"{party} has {_form(ids)}" for party, ids in ids_of.items())
    raise DataError(
        f"{where}: the parties share nobody: no value of {column!r} is held by all of them ({forms}); check that the "
        "column means the same in every file and is written in the same way",
        code="empty-intersection",
        key=_KEY,
    )


def _is_identifier(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return False
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return whole or isinstance(value, str | int | np.integer)


def _form(ids: set[str]) -> str:
    if not ids:
        return "no records"
    sizes = sorted({len(one) for one in ids})
    length = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    what = "digits" if all(one.isdecimal() for one in ids) else "characters"
    return f"{len(ids)} of {length} {what}"
