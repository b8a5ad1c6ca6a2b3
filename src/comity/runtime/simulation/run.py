"""A study file run as a simulation: its records read and dealt to the parties, its ledgers and journal in a run folder.

Everything that can be wrong with the data is found in `gather`, before a ledger exists and before anything is drawn.
Splits use public randomness named by the study's hash, so that the same study deals the same records on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from math import isinf
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.data import (
    Encoding,
    Finding,
    Held,
    Records,
    StreamedRecords,
    by_anchors,
    by_column,
    by_sizes,
    even,
    explain_size,
)
from comity.entropy import Stream
from comity.errors import BadInput, BudgetExceeded, StudyError
from comity.federation.coordinator.parties import Progress
from comity.federation.declaring.payers import groups
from comity.learn.voters.local_model import LocalModel
from comity.privacy.ledger import Ledger
from comity.privacy.ledger.shared import SharedFile
from comity.privacy.loss import LOSSES, Approx, Pure, shown
from comity.privacy.unit import Unit
from comity.runtime.local.stacks import runs_as_stacks
from comity.runtime.records.deal_columns import check_rows, deal_columns, is_vertical, party_encoding
from comity.runtime.records.encodings import encoding_of
from comity.runtime.records.identifiers import check_distinct, check_kind, check_shared
from comity.runtime.records.local_models import study_models
from comity.runtime.records.own_records import own_records, whole_records
from comity.runtime.records.same_records import require_same
from comity.runtime.records.sources import is_one, named, odd, read_records, sentences
from comity.runtime.results.outcome import Outcome
from comity.runtime.results.received import safe_name
from comity.runtime.simulation.simulate import Granted, delta_of, encoded, granted, simulate
from comity.runtime.study.study import Study

# Up to so many parties each has a ledger in a file of its own; each file costs several durable writes. Beyond, up to
# REAL_HOSTS, they share one.
FILE_EACH = 64

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Material:
    """What a simulation starts from: each party's records, records to test on that no party has, and the local models
    of parties that have their own; and what is odd about the records (`comity.runtime.records.sources`)."""

    parties: Mapping[str, Held]
    test: Records | None
    models: Mapping[str, LocalModel] = field(default_factory=dict)
    findings: tuple[str, ...] = ()


def run_study(
    study: Study,
    *,
    seed: int | None = None,
    folder: Path | None = None,
    run_id: str | None = None,
    progress: Progress | None = None,
    material: Material | None = None,
    models: Any = None,
    results: bool | None = None,
    repeats: int = 0,
) -> Outcome:
    """Simulate a study as its file says. The same folder and run id again resume it, and nothing is drawn twice.

    Without a folder, or where parties run as stacks, sites and journal live in memory and end with the process.
    `models` stand in for those of the file, where they are made in Python. A folder whose run began with other records
    is refused: steps that ran and steps that are to come would not belong together. `results` and `repeats` are as in
    `simulate`.
    """
    if material is None:
        if progress is not None:
            progress("reading data")
        material = gather(study)
    durable = folder is not None and can_resume(study, material)
    grants = grants_of(study, list(material.parties))
    if durable and folder is not None:
        require_same(study, material, folder)
    try:
        outcome = simulate(
            study.protocol,
            parties=material.parties,
            epsilon=study.privacy.epsilon,
            delta=study.privacy.delta,
            schema=study.schema,
            unit=study.privacy.unit.value,
            neighbours=study.privacy.neighbours.value,
            colluders=study.consortium.colluders,
            dropouts=study.privacy.dropouts,
            roles=study.consortium.roles,
            seed=seed,
            test=material.test,
            baselines=study.simulation.baselines,
            grant=grants,
            ledgers=_ledgers(study, material, folder, grants) if durable and folder is not None else None,
            journal=folder / "journal.sqlite" if durable and folder is not None else None,
            run_id=run_id,
            study=study.name,
            study_hash=study.hash,
            settings=settings_of(study),
            models=material.models if models is None else models,
            progress=progress,
            evaluation=None if study.evaluation is None else study.evaluation.model_dump(),
            laid_out=True,
            results=results,
            hosts=study.simulation.hosts,
            repeats=repeats,
        )
        return replace(outcome, findings=material.findings)
    except BudgetExceeded as refusal:
        grant = grant_of(study)
        key = "simulation.grant" if study.simulation.grant is not None else "privacy.epsilon"
        raise BudgetExceeded(
            f"{study.where}: a simulated party was granted {grant} ({key}) and the study asks eps {refusal.requested}, "
            f"{refusal.remaining} is left ({refusal.difference} short). Raise simulation.grant, or lower "
            "privacy.epsilon",
            requested=refusal.requested,
            remaining=refusal.remaining,
            difference=refusal.difference,
            key="simulation.grant",
        ) from refusal


def can_resume(study: Study, material: Material) -> bool:
    """Whether each party has a host, with a store that outlives the process; stacks of parties have none."""
    return not runs_as_stacks(len(material.parties), hosts=study.simulation.hosts)


def grant_of(study: Study) -> Pure | Approx:
    """What each simulated owner grants: `simulation.grant`, or just what the study asks."""
    epsilon, delta = study.simulation.grant or study.privacy.epsilon, study.privacy.delta
    return Approx(epsilon, delta) if delta else Pure(epsilon)


def grants_of(study: Study, parties: Sequence[str]) -> float | dict[str, float | Approx]:
    """`grant_of`; and where the file sets no grant, what a role pays beyond the epsilon of the study is granted too. A
    loss that no epsilon covers at the study's delta, of a published method that does not keep its claim, is granted
    with its own."""
    usual, who = float(grant_of(study).epsilon), replace(study.consortium, parties=tuple(parties))
    if study.simulation.grant is not None or not who.roles:
        return usual
    grants: dict[str, float | Approx] = {}
    for group in groups(study.protocol.accepted(who), who):
        asked = float(group.spent.epsilon_at(delta_of(who.loss)))
        if isinf(asked):
            whole = LOSSES.add(group.spent.approx_epsilon, group.spent.pure)
            grants.update(dict.fromkeys(group.parties, Approx(whole, group.spent.delta)))
            continue
        # A little up: what a loss converts to and back again is rounded both ways.
        own = usual if asked <= usual else float(shown(Decimal(repr(asked * (1 + 1e-6))), decimals=2))
        grants.update(dict.fromkeys(group.parties, own))
    return grants


def settings_of(study: Study) -> dict[str, object]:
    """Every setting that the run used, by dotted key, whether written or left to its default; no other variant's."""
    tables = {"privacy": study.privacy, study.protocol_name: study.parameters, "simulation": study.simulation}
    every = {
        f"{name}.{key}": value for name, table in tables.items() for key, value in table.model_dump(mode="json").items()
    }
    known = study.settings()
    measured = {key: value for key, value in known.items() if key.startswith("evaluation.")}
    return measured | {key: value for key, value in every.items() if key in known or key.startswith("simulation.")}


def _ledgers(
    study: Study, material: Material, folder: Path, grants: float | Mapping[str, float | Approx]
) -> dict[str, Ledger]:
    who = replace(study.consortium, parties=tuple(material.parties))
    declaration = study.protocol.accepted(who)
    terms = {party: granted(grants, study.privacy.delta, declaration, who, party) for party in material.parties}
    if len(material.parties) > FILE_EACH:
        shared = SharedFile(folder / "sites.sqlite")
        return {
            party: Ledger.seated(
                shared,
                place,
                dataset=party,
                unit=study.privacy.unit,
                neighbours=study.privacy.neighbours,
                **terms[party],
            )
            for place, party in enumerate(material.parties, start=1)
        }
    place = folder / "ledgers"
    place.mkdir(exist_ok=True)
    return {party: _ledger(place / file_name(party), party, study, terms[party]) for party in material.parties}


def _ledger(path: Path, party: str, study: Study, terms: Granted) -> Ledger:
    """The party's ledger, made under another name first: a run that was killed meanwhile leaves no half-made one."""
    if not path.exists():
        draft = path.with_suffix(".new")
        for suffix in ("", "-wal", "-shm"):
            Path(f"{draft}{suffix}").unlink(missing_ok=True)
        assert terms["grant"] is not None
        made = Ledger.create(
            draft,
            dataset=party,
            grant=terms["grant"],
            currency=terms["currency"],
            unit=study.privacy.unit,
            neighbours=study.privacy.neighbours,
            simulated=True,
        )
        # The last connection must be closed before the file moves, or its write-ahead log would stay behind.
        del made
        draft.rename(path)
    return Ledger(path)


def file_name(party: str) -> str:
    """The file of a party's ledger."""
    return f"{safe_name(party)}.ledger"


def gather(study: Study) -> Material:
    """Read, check and encode every record of the simulation, deal them to the parties, and find their models."""
    material = _dealt(study)
    if not isinstance(study.parties, int):
        # In the study's order, which its hash covers, and not in that of the data.
        material = replace(material, parties={name: material.parties[name] for name in study.parties})
    return replace(material, models=study_models(study, list(material.parties)))


def _dealt(study: Study) -> Material:
    table = study.simulation
    if study.prediction is not None:
        raise StudyError(
            f"{study.where}: a study with [prediction] trains nothing that could be simulated; to try a joint "
            "prediction here: comity predict RUN PARTY=FILE ... --jointly",
            key="prediction",
        )
    # What public figures decide is decided before a record is read.
    study.plan()
    if table.data is None:
        raise StudyError(
            f"{study.where}: simulation.data is missing; name one file to be split among the parties, "
            "or a file for each party",
            key="simulation.data",
        )
    if is_vertical(study.protocol):
        return _by_features(study)
    found: list[Finding] = []
    if is_one(table.data, _listed(study)):
        where, owners = named(study, table.data), study.consortium.size
        encoding = encoding_of(study.protocol, where, None)
        frame = whole_records(study, table.data, "simulation.data", encoding, owners=owners)
        _some_records(study, len(frame))
        whole = encoded(study.protocol, frame, where)
        parties: dict[str, Held] = {name: _rows(whole, rows) for name, rows in _split(study, frame).items()}
        found += odd(study, frame, where)
        for name, records in parties.items():
            declared = study.parameters.declared_records(name)
            unit = study.privacy.unit.value
            found += explain_size(len(records), f"{where}: {name}", unit=unit, declared=declared)
    else:
        _matching(study, list(table.data), "simulation.data has")
        parties = {}
        for name, value in table.data.items():
            parties[name], told = own_records(study, value, name)
            found += told
        if study.privacy.unit is not Unit.PARTY:
            _some_records(study, sum(map(len, parties.values())))
    if table.test is not None:
        test = read_records(study, table.test, "simulation.test")
        if test.empty:
            raise StudyError(
                f"{study.where}: simulation.test: {named(study, table.test)} holds no records; give some, or leave the "
                "key out to hold some back",
                key="simulation.test",
            )
        return Material(parties, encoded(study.protocol, test, named(study, table.test)), findings=sentences(found))
    return replace(_held_out(study, parties), findings=sentences(found))


def _some_records(study: Study, records: int) -> None:
    if not records:
        raise StudyError(
            f"{study.where}: simulation.data holds no records at all, so that every ledger would pay for nothing; "
            "check that it names the right files",
            key="simulation.data",
        )


def _listed(study: Study) -> Iterable[str]:
    return () if isinstance(study.parties, int) else study.parties


def _by_features(study: Study) -> Material:
    """Each party has its own columns: of one file, or a file of its own with its own rows."""
    table, names = study.simulation, tuple(study.consortium.parties)
    found: list[Finding] = []
    if is_one(table.data, _listed(study)):
        if table.split != "by-features":
            raise StudyError(
                f'{study.where}: simulation.split = "{table.split}" deals whole records, and {study.protocol_name} '
                'gives parties different columns; choose "by-features"',
                key="simulation.split",
            )
        held_out = table.holdout if table.test is None else None
        file = named(study, table.data)
        encoding = encoding_of(study.protocol, file, None)
        frame = whole_records(study, table.data, "simulation.data", encoding, owners=len(names))
        _some_records(study, len(frame))
        _check_people(study, frame, file)
        parties, rest = deal_columns(study.protocol, frame, names, holdout=held_out, name=study.hash, where=file)
        found += odd(study, frame, file)
    else:
        _matching(study, list(table.data), "simulation.data has")
        parties, rest = {}, None
        for name in names:
            where = named(study, table.data[name])
            encoding = party_encoding(study.protocol, name)
            frame = whole_records(study, table.data[name], f"simulation.data.{name}", encoding)
            _check_people(study, frame, where)
            parties[name] = encoded(study.protocol, frame, where, party=name)
            found += odd(study, frame, where, schema=encoding.schema, party=name)
        if study.privacy.unit is not Unit.PARTY:
            _some_records(study, sum(map(len, parties.values())))
    if study.schema.identifier is not None and _aligns(study):
        check_shared(parties, study.where, study.schema.identifier)
    elif not _aligns(study):
        check_rows(study.protocol, parties, study.where)
    if table.test is not None:
        rest = read_records(study, table.test, "simulation.test")
    test = None if rest is None else encoded(study.protocol, rest, f"{study.where}: simulation")
    return Material(parties, test, findings=sentences(found))


def _check_people(study: Study, frame: pd.DataFrame, where: str) -> None:
    """Where rows are aligned, every file has one record per person, whose identifier reads the same in all files."""
    name = study.schema.identifier
    if name is not None and name in frame.columns and _aligns(study):
        check_kind(frame[name], where)
        check_distinct(frame[name], where)


def _aligns(study: Study) -> bool:
    return getattr(study.protocol, "alignment", "none") != "none"


def _rows(records: Records, rows: Rows) -> Records:
    return Records(
        records.features[rows],
        None if records.labels is None else records.labels[rows],
        None if records.ids is None else records.ids[rows],
    )


def _held_out(study: Study, parties: Mapping[str, Held]) -> Material:
    """Sets the same share of each party's records aside; a fraction of a record is decided by public chance. Of records
    that are read in blocks none is."""
    stream = Stream.public(study.hash, "holdout")
    kept: dict[str, Held] = {}
    tested = []
    for name, records in parties.items():
        if isinstance(records, StreamedRecords):
            kept[name] = records
            continue
        count = int(len(records) * study.simulation.holdout + stream.uniform(1)[0])
        order = stream.permutation(len(records))
        tested.append(_rows(records, np.sort(order[:count])))
        kept[name] = _rows(records, np.sort(order[count:]))
    if not sum(map(len, tested)):
        return Material(kept, None)
    features = np.concatenate([records.features for records in tested])
    labels: Any = [records.labels for records in tested if records.labels is not None]
    return Material(kept, Records(features, np.concatenate(labels) if labels else None))


def _split(study: Study, frame: pd.DataFrame) -> dict[str, Rows]:
    """Which rows of the one file each party gets."""
    table, names = study.simulation, study.consortium.parties
    stream = Stream.public(study.hash, "split")
    where = named(study, table.data)
    if table.split == "by-features":
        raise StudyError(
            f'{study.where}: simulation.split = "by-features" gives parties different columns, and '
            f'{study.protocol_name} needs whole records; choose "even", "by-sizes", "by-anchors" or "by-column"',
            key="simulation.split",
        )
    if table.split == "by-column":
        parts = by_column(frame, _column(study, "names each record's party"), where)
        _matching(study, list(parts), f"column {table.column!r} of {where} holds")
        return parts
    try:
        if table.split == "even":
            dealt = even(len(frame), len(names), stream)
        elif table.split == "by-sizes":
            dealt = by_sizes(len(frame), _sizes(study, len(names)), stream)
        else:
            column = _column(study, "is what the parties differ in")
            dealt = by_anchors(_scaled(study, frame, column, where), len(names), stream, low=0.0, high=1.0)
    except BadInput as error:
        raise StudyError(f"{study.where}: simulation.{error}", key=f"simulation.{error.key}") from error
    return dict(zip(names, dealt))


def _column(study: Study, purpose: str) -> str:
    if study.simulation.column is None:
        raise StudyError(
            f'{study.where}: simulation.split = "{study.simulation.split}" needs simulation.column, which {purpose}; '
            "add it",
            key="simulation.column",
        )
    return study.simulation.column


def _sizes(study: Study, parties: int) -> list[int] | list[float]:
    sizes = study.simulation.sizes or []
    if len(sizes) != parties:
        raise StudyError(
            f"sizes needs a size for each of {parties} parties, found {len(sizes)}; give counts, or shares that "
            "add up to 1",
            key="sizes",
        )
    # A file's 1 is as good as 1.0 to the reader of the study; whole numbers above 1 are counts of records.
    return [int(size) for size in sizes] if all(size.is_integer() for size in sizes) and sum(sizes) != 1 else sizes


def _scaled(study: Study, frame: pd.DataFrame, column: str, where: str) -> NDArray[np.float64]:
    """The attribute on [0, 1] by its public bounds, whatever the protocol's own encoding does to rows."""
    plain = Encoding(study.schema, scaling="unit")
    if column not in plain.names:
        raise StudyError(
            f"column = {column!r} is no numeric or ordinal column of the schema; choose one of those", key="column"
        )
    return plain.encode_features(frame, where=where)[:, plain.names.index(column)]


def _matching(study: Study, found: Sequence[str], said: str) -> None:
    """The parties that the data have are those that the study lists, or as many as it counts."""
    if isinstance(study.parties, int):
        if len(found) != study.parties:
            raise StudyError(
                f"{study.where}: parties.count = {study.parties}, and {said} {len(found)} parties; set parties.count "
                f"to {len(found)}, or correct the data",
                key="parties.count",
            )
        return
    absent = [name for name in study.parties if name not in found]
    surplus = [name for name in found if name not in study.parties]
    if absent or surplus:
        wrong = f"nothing for {_few(absent)}" if absent else f"{_few(surplus)}, which the study does not list"
        raise StudyError(
            f"{study.where}: {said} {wrong}; every [parties.NAME] of the study needs its records and no other may have "
            "any. Correct [parties] or the data",
            key="parties",
        )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
