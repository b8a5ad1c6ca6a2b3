"""What the parties of a simulation hold: read, checked, encoded and split among them.

Everything that can be wrong with the data is found here, before a ledger exists and before anything is drawn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from comity.data import Finding, LocalRecords, Records, digest_records, explain, explain_size
from comity.errors import Refused, StudyError
from comity.federation.agreement import Agreement
from comity.files import write_atomically
from comity.learn.local_models import LocalModel, Predictions
from comity.privacy.unit import Unit
from comity.representation import short_repr
from comity.study.local.stacks import REAL_HOSTS
from comity.study.records.by_columns import split_columns
from comity.study.records.encoding import EncodesByParty, data_warnings, encode_records, encoding_of
from comity.study.records.groups import PARTY, Groups, check_groups, label_groups
from comity.study.records.local_models import build_local_models, load_local_models
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
from comity.study.records.splitting import concatenate_records, deal_rows, exclude_rows, holdout_rows, select_rows
from comity.study.study import Study
from comity.study.tables import is_one_source

DIGESTS = "records.json"

Data = pd.DataFrame | LocalRecords
"""A party's records as a caller of a simulation may give them."""


@dataclass(frozen=True, eq=False)
class PartyData:
    """Each party's records, and its own model where it has one; records to `test` on that no party has, with the
    subgroups to compare; and warnings about all of them, in sentences."""

    __repr__ = short_repr

    parties: Mapping[str, LocalRecords]
    test: Records | None = None
    models: Mapping[str, LocalModel] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    groups: Groups = field(default_factory=Groups)

    @property
    def in_memory(self) -> list[Records] | None:
        """All records at once; None where some are read in blocks."""
        records = [one for one in self.parties.values() if isinstance(one, Records)]
        return records if len(records) == len(self.parties) else None


def load_party_data(study: Study) -> PartyData:
    """Load what each party holds, its model with it. What public figures rule out is refused before a record is
    read."""
    if study.prediction is not None:
        raise StudyError(
            f"{study.where}: a study with [prediction] trains nothing that could be simulated; to try a joint "
            "prediction here: comity predict RUN PARTY=FILE ... --jointly",
            key="prediction",
        )
    study.plan()
    by_columns = isinstance(study.protocol, EncodesByParty)
    check_groups(study, study.simulation.evaluate_by, of_parties=not by_columns)
    if study.simulation.data is None:
        raise StudyError(
            f"{study.where}: simulation.data is missing; name one file to be split among the parties, "
            "or a file for each party",
            key="simulation.data",
        )
    parties: Mapping[str, LocalRecords]
    parties, test, groups, findings = split_columns(study) if by_columns else split_rows(study)
    if not isinstance(study.parties, int):
        # In the study's order, which its hash covers, and not in that of the data.
        parties = {name: parties[name] for name in study.parties}
    return PartyData(parties, test, load_local_models(study, list(parties)), data_warnings(findings), groups)


def encode_party_data(
    agreement: Agreement, parties: Mapping[str, Data], test: pd.DataFrame | Records | None, models: Any
) -> PartyData:
    """What the parties of a simulation hold, from frames or encoded records."""
    protocol, consortium = agreement.protocol, agreement.consortium
    records = {
        party: encode_records(protocol, data, party, party=party) if isinstance(data, pd.DataFrame) else data
        for party, data in parties.items()
    }
    findings = [
        finding
        for party, data in parties.items()
        if isinstance(data, pd.DataFrame) and len(parties) <= REAL_HOSTS
        for finding in explain(encoding_of(protocol, party, party).schema, data, party, unit=consortium.unit.value)
    ]
    encoded_test = encode_records(protocol, test, "test") if isinstance(test, pd.DataFrame) else test
    return PartyData(records, encoded_test, build_local_models(protocol, consortium, models), data_warnings(findings))


# Parties with whole records each: of one file whose rows are dealt to them, or a file for each.


def split_rows(study: Study) -> tuple[dict[str, LocalRecords], Records | None, Groups, list[Finding]]:
    """The records of each party, those to test on with their subgroups, and what looks wrong about all of them."""
    table = study.simulation
    one_file = is_one_source(table.data, listed_parties(study))
    parties, held_out, frames, findings = _split_one_file(study) if one_file else _load_own_files(study)
    if table.test is None:
        return parties, concatenate_records(held_out), _group_held_out(study, frames, list(parties)), findings
    frame, where = open_named(study, table.test, "simulation.test").read(), name_source(study, table.test)
    if frame.empty:
        raise StudyError(
            f"{study.where}: simulation.test: {where} holds no records; give some, or leave the key out to hold some "
            "back",
            key="simulation.test",
        )
    tested = encode_records(study.protocol, frame, where)
    return parties, tested, _group_test_file(study, frame, where, list(parties)), findings


def _group_test_file(study: Study, frame: pd.DataFrame, where: str, parties: list[str]) -> Groups:
    """The subgroups of a test file. The column that splits the data to the parties names the party of a test record."""
    table, owners = study.simulation, None
    if PARTY in table.evaluate_by and PARTY not in (*study.schema.names, getattr(study.schema.target, "name", None)):
        if table.split != "by-column" or table.column not in frame.columns:
            raise StudyError(
                f'{study.where}: simulation.evaluate_by: "{PARTY}" needs test records that belong to a party, and '
                f"{where} names none; leave it out, or leave simulation.test out to hold records of each party back",
                key="simulation.evaluate_by",
            )
        owners = [str(owner) for owner in frame[table.column]]
    return label_groups(study.schema, table.evaluate_by, frame, where, owners, parties)


_HeldOut = list[tuple[pd.DataFrame, list[str]]]
"""Frames of held-out records, with the party of each record."""


def _group_held_out(study: Study, frames: _HeldOut, parties: list[str]) -> Groups:
    """The subgroups of held-out records, in the order of `concatenate_records`."""
    names = study.simulation.evaluate_by
    if not names or not frames:
        return Groups()
    whole = pd.concat([frame for frame, _ in frames], ignore_index=True)
    owners = [party for _, named in frames for party in named]
    return label_groups(study.schema, names, whole, study.where, owners, parties)


def _split_one_file(study: Study) -> tuple[dict[str, LocalRecords], list[Records], _HeldOut, list[Finding]]:
    where, owners = name_source(study, study.simulation.data), study.consortium.size
    encoding = encoding_of(study.protocol, where, None)
    frame = load_whole_frame(study, study.simulation.data, "simulation.data", encoding, owners=owners)
    require_records(study, len(frame))
    whole = encoding.encode(frame, where=where).records
    dealt, held_out = deal_rows(study, frame)
    findings, unit = check_frame(study, frame, where), study.privacy.unit.value
    for name, rows in dealt.items():
        declared = study.method.declared_records(name)
        findings += explain_size(len(rows), f"{where}: {name}", unit=unit, declared=declared)
    parties: dict[str, LocalRecords] = {
        name: select_rows(whole, exclude_rows(rows, held_out)) for name, rows in dealt.items()
    }
    owner = {int(row): name for name, rows in dealt.items() for row in rows}
    tested = [(frame.iloc[held_out], [owner[int(row)] for row in held_out])]
    return parties, [select_rows(whole, held_out)], tested, findings


def _load_own_files(study: Study) -> tuple[dict[str, LocalRecords], list[Records], _HeldOut, list[Finding]]:
    """Of records that are read in blocks none is held out."""
    table = study.simulation
    require_parties(study, list(table.data), "simulation.data has")
    parties: dict[str, LocalRecords] = {}
    tested: list[Records] = []
    frames: _HeldOut = []
    findings: list[Finding] = []
    for name, value in table.data.items():
        records, frame, own_findings = load_own_records(study, value, name)
        findings += own_findings
        if isinstance(records, Records) and table.test is None:
            held_out = holdout_rows(len(records), share=table.holdout, split_seed=table.split_seed, group=name)
            tested.append(select_rows(records, held_out))
            if frame is not None and len(held_out):
                frames.append((frame.iloc[held_out], [name] * len(held_out)))
            records = select_rows(records, exclude_rows(np.arange(len(records)), held_out))
        parties[name] = records
    if study.privacy.unit is not Unit.PARTY:
        require_records(study, sum(map(len, [*parties.values(), *tested])))
    return parties, tested, frames, findings


# A resumed run continues with the records that it began with.


def require_same_data(study: Study, data: PartyData, folder: Path) -> None:
    """Write the digests of what a run begins with beside its journal; refuse to resume it with anything else.

    A step that ran is not run again. If records changed after a kill, what was made of the old ones would be mixed with
    the new ones, and the result would show no sign of it.
    """
    path, digests = folder / DIGESTS, digest_data(study, data)
    try:
        if not path.exists():
            write_atomically(path, json.dumps(digests, indent=0, ensure_ascii=False) + "\n")
            return
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StudyError(f"{path}: can't be read or written ({error}); run the study again") from error
    changed = [name for name in {**known, **digests} if known.get(name) != digests.get(name)]
    if changed:
        few = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        raise Refused(
            f"{folder}: this run began with other data than it finds ({few}), and what it has done so far was made "
            "from those. Put the files back, or start a new run",
            code="data",
        )


def digest_data(study: Study, data: PartyData) -> dict[str, str]:
    """Digests by the names that a person would give. They tell of private records and stay in the run's folder."""
    digests = {f"records of {party}": digest_records(records) for party, records in data.parties.items()}
    if data.test is not None:
        digests["test records"] = digest_records(data.test)
    for party, model in data.models.items():
        if isinstance(model, Predictions):
            digests[f"predictions of {party}"] = digest_records(model.votes)
    auxiliary = getattr(study.protocol, "auxiliary", None)
    if isinstance(auxiliary, np.ndarray):
        digests["auxiliary records"] = digest_records(auxiliary)
    return digests
