"""A study file: schema, parties, protocol, parameters, privacy. The same file is simulated and deployed.

`Study.load` reads public files only (the study, its schema, public auxiliary records). The hash covers their content
and leaves out `[simulation]`: two people who see the same hash agreed on the same study. Somebody else may have written
the study: outside `[simulation]` it names files in its own folder only, and reading it opens no other file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comity.crypto.sealing import PublicIdentity
from comity.data import Schema
from comity.errors import StudyError
from comity.federation.agreement import Agreement
from comity.federation.declare.about import UNSTATED, About
from comity.federation.declare.consortium import COORDINATOR, Consortium, default_colluders
from comity.federation.declare.policy import name_drafts
from comity.federation.plan import Plan, plan
from comity.federation.protocol import Protocol
from comity.methods import PROTOCOLS, Method, Setting, method_of
from comity.methods.tables import hint, validate
from comity.representation import html_table, short_repr
from comity.study.local.stacks import NumberedParties, require_stacks, runs_as_stacks
from comity.study.prediction import build_prediction
from comity.study.public_files import digest_file, load_schema, read_public_records
from comity.study.tables import (
    CoordinatorTable,
    EvaluationTable,
    PartyTable,
    PredictionTable,
    PrivacyTable,
    SimulationTable,
    StudyFile,
    apply_override,
    check_roles,
    check_sources,
    prefix_errors,
    read_parties,
)
from comity.untrusted.toml import parse_toml

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Study:
    """A study as agreed. `folder` is where its relative paths start; `files` are those that its hash covers, by key.

        study = comity.Study.load("study.toml")
        study.hash, study.plan()

    `comity.simulate(study)` runs it on this machine.
    """

    __repr__ = short_repr

    def _repr_html_(self) -> str:
        """What it is, for a notebook; `plan()` says what it would do."""
        privacy = self.privacy
        rows = [
            ("method", repr(self.method)),
            ("parties", f"{self.consortium.size:,}"),
            ("privacy", f"epsilon {privacy.epsilon:g}, delta {privacy.delta:g}, unit: {privacy.unit.value}"),
            ("schema", f"{len(self.schema.columns)} columns"),
            ("hash", self.hash),
        ]
        return html_table(f"Study {self.name!r}", ("", ""), rows, self.notices)

    name: str
    schema: Schema
    privacy: PrivacyTable
    method: Method
    parties: Mapping[str, PartyTable] | int
    coordinator: CoordinatorTable
    simulation: SimulationTable
    folder: Path
    hash: str
    text: str
    where: str
    protocol: Protocol
    setting: Setting
    files: Mapping[str, str]
    evaluation: EvaluationTable | None = None
    prediction: PredictionTable | None = None
    about: About = UNSTATED
    notices: tuple[str, ...] = ()
    """What its author should know: options by their earlier names, sizes that were counted."""

    @property
    def protocol_name(self) -> str:
        return self.method.table

    @cached_property
    def consortium(self) -> Consortium:
        with prefix_errors(self.where):
            return self._consortium()

    def _consortium(self) -> Consortium:
        names: Sequence[str] = NumberedParties(self.parties) if isinstance(self.parties, int) else tuple(self.parties)
        roster, roles = {}, {}
        if not isinstance(self.parties, int):
            roster = {
                n: _read_identity(p.keys, f"parties.{n}", self.where)
                for n, p in self.parties.items()
                if p.keys is not None
            }
            for role in dict.fromkeys(p.role for p in self.parties.values() if p.role is not None):
                roles[role] = tuple(n for n, p in self.parties.items() if p.role == role)
        if self.coordinator.keys is not None:
            roster[COORDINATOR] = _read_identity(self.coordinator.keys, "coordinator", self.where)
        privacy = self.privacy
        # Zero colluders is never the default: the study or its variant sets it.
        colluders_set = "colluders" in privacy.model_fields_set or privacy.colluders == 0
        loss, evaluation = privacy.split_budget(self.evaluation)
        return Consortium(
            parties=names,
            loss=loss,
            evaluation=evaluation,
            unit=privacy.unit,
            neighbours=privacy.neighbours,
            colluders=privacy.colluders if colluders_set else default_colluders(len(names), privacy.dropouts),
            dropouts=privacy.dropouts,
            roster=roster,
            roles=roles,
            schema=self.schema,
        )

    @cached_property
    def agreement(self) -> Agreement:
        """What the participants agree on. Hosts and coordinator are built from it; the plan shows its declaration."""
        return Agreement(self.hash, self.protocol, self.consortium, self.name, self.about)

    def plan(self) -> Plan:
        """What a run would release, to whom and at what loss. No records are read."""
        # A protocol's refusal names the wrong key; the prefix adds the file.
        with prefix_errors(self.where):
            consortium, declaration = self.consortium, self.agreement.accepted
            if runs_as_stacks(consortium.size, hosts=self.simulation.hosts):
                require_stacks(self.protocol, declaration, consortium)
            return plan(self.name, self.protocol, consortium, declaration, self.about)

    def defaults(self) -> dict[str, Any]:
        """Every setting that the file left to its default, by dotted key; no keys of other variants."""
        return {key: value for key, value in self.settings().items() if not self._written(key)}

    def settings(self) -> dict[str, Any]:
        """Every setting that the study has, by dotted key, whether written or left to its default."""
        own = self.method.own_keys(self.setting)
        measured = {} if self.evaluation is None else self.evaluation.model_dump()
        return {
            **{f"study.{key}": text for key, text in self.about.given().items()},
            **{f"evaluation.{key}": value for key, value in measured.items() if value is not None},
            **{f"privacy.{key}": getattr(self.privacy, key) for key in type(self.privacy).model_fields},
            **{f"{self.protocol_name}.{key}": getattr(self.method, key) for key in own},
        }

    def _written(self, dotted: str) -> bool:
        table, _, key = dotted.partition(".")
        if table in ("study", "evaluation"):
            return True
        return key in (self.privacy if table == "privacy" else self.method).model_fields_set

    @classmethod
    def load(cls, path: str | Path, *, overrides: Mapping[str, Any] | None = None) -> Study:
        """Read a study; `overrides` are dotted keys, for a simulation only."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise StudyError(f"{path}: there is no such study file; write one with: comity new NAME") from None
        except IsADirectoryError:
            raise StudyError(f"{path}: is a folder; give the study file in it: {path / 'study.toml'}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise StudyError(f"{path}: the study can't be read ({error})") from error
        return cls.parse(text, folder=path.parent, where=str(path), overrides=overrides)

    @classmethod
    def parse(
        cls, text: str, *, folder: Path, where: str = "study", overrides: Mapping[str, Any] | None = None
    ) -> Study:
        tables = parse_toml(text, where)
        for key, value in (overrides or {}).items():
            apply_override(tables, key, value, where)
        named = tables.get("study")
        protocol_name = str(named.get("protocol", "")) if isinstance(named, dict) else ""
        if protocol_name not in PROTOCOLS:
            raise StudyError(
                f"{where}: study.protocol must be one of {', '.join(PROTOCOLS)}, found {protocol_name!r}"
                + hint(protocol_name, PROTOCOLS),
                key="study.protocol",
            )
        own = tables.pop(protocol_name, {})
        file = validate(StudyFile, tables, where, "", extra=(protocol_name,))
        kind = method_of(protocol_name)
        own, notices = kind.rename_old_options(own, where) if isinstance(own, Mapping) else (own, ())
        method = validate(kind, own, where, protocol_name + ".")
        parties = read_parties(file.parties, where)
        check_sources(file.simulation.data, file.simulation.test, () if isinstance(parties, int) else parties, where)
        schema = load_schema(folder, file.study.schema_, where)

        def read(name: str, key: str) -> pd.DataFrame:
            return read_public_records(folder, name, key, where)

        def digest(name: str, key: str) -> str:
            return digest_file(folder, name, key, where)

        public = PublicFiles(read, digest, {"study.schema": file.study.schema_, **method.files()})
        return cls._build(file, method, parties, schema, public, folder=folder, text=text, where=where, notices=notices)

    @classmethod
    def of(
        cls,
        method: Method,
        parties: Sequence[str],
        *,
        epsilon: float,
        delta: float = 0.0,
        roles: Mapping[str, Sequence[str]] | None = None,
        evaluation: Mapping[str, float | None] | None = None,
        name: str = "study",
        **privacy: Any,
    ) -> Study:
        """The study of a method that was made in Python. Its schema and tables are in memory: it can be planned and
        simulated, but not packed."""
        role_of = {party: role for role, names in (roles or {}).items() for party in names}
        strangers = [party for party in role_of if party not in parties]
        if strangers:
            raise StudyError(f"roles name {strangers[0]!r}, which is no party; the parties are {', '.join(parties)}")
        tables = {
            "study": {"name": name, "protocol": method.table, "schema": "<schema>"},
            "privacy": {"epsilon": epsilon, "delta": delta, **{k: v for k, v in privacy.items() if v is not None}},
            "parties": {party: _describe_party(method, party, role_of) for party in parties},
            **({} if evaluation is None else {"evaluation": dict(evaluation)}),
        }
        file = validate(StudyFile, tables, name, "")
        public = PublicFiles(method.read_given, lambda _, key: method.digest_given(key), {})
        return cls._build(
            file,
            method,
            read_parties(file.parties, name),
            method.given_schema,
            public,
            folder=Path(),
            text="",
            where=name,
            notices=method.notices,
        )

    @classmethod
    def _build(
        cls,
        file: StudyFile,
        method: Method,
        parties: Mapping[str, PartyTable] | int,
        schema: Schema,
        public: PublicFiles,
        *,
        folder: Path,
        text: str,
        where: str,
        notices: tuple[str, ...],
    ) -> Study:
        """Build the protocol from these tables, and the hash from everything that is agreed on."""
        columns = {} if isinstance(parties, int) else {n: tuple(p.columns) for n, p in parties.items() if p.columns}
        if columns and not method.by_columns:
            key = f"parties.{next(iter(columns))}.columns"
            raise StudyError(
                f"{where}: {key}: in {method.table} every party holds whole records; leave it out, or choose a "
                "protocol for columns of the same people at different owners",
                key=key,
            )
        setting = Setting(schema, where, public.read, columns, {"delta": file.privacy.delta})
        privacy = file.privacy.with_defaults(method.privacy(setting))
        setting = replace(setting, privacy=privacy.model_dump(include={"delta", "colluders", "dropouts"}))
        files = dict(public.names)
        with prefix_errors(where):
            protocol = method.build(setting)
            _, evaluation = privacy.split_budget(file.evaluation)
            protocol = protocol if evaluation is None else protocol.on_training_part(evaluation)
            if file.prediction is not None:
                if file.evaluation is not None:
                    raise StudyError(
                        "[evaluation] measures a model that the study trains, and one with [prediction] trains none; "
                        "leave one out",
                        key="evaluation",
                    )
                files["prediction.weights"] = file.prediction.weights
                protocol = build_prediction(file.prediction, protocol, schema, parties, folder, where)
        check_roles(parties, protocol, where)
        content = {
            "study": {"name": file.study.name, "protocol": method.table, "version": protocol.version}
            # Studies that were agreed on before these keys existed keep their hashes.
            | file.study.about.given(),
            "schema": schema.digest(),
            "privacy": privacy.model_dump(mode="json"),
            # In their order: shares, positions and columns depend on it.
            "parties": parties if isinstance(parties, int) else [[n, p.model_dump()] for n, p in parties.items()],
            "coordinator": file.coordinator.model_dump(),
            "parameters": method.options_for_hash(),
            "files": {name: public.digest(name, key) for key, name in method.files().items()},
        }
        if file.evaluation is not None:
            content["evaluation"] = file.evaluation.model_dump()
        if file.prediction is not None:
            weights = public.digest(file.prediction.weights, "prediction.weights")
            content["prediction"] = {**file.prediction.model_dump(), "weights": weights}
        return cls(
            name=file.study.name,
            schema=schema,
            privacy=privacy,
            method=method,
            parties=parties,
            coordinator=file.coordinator,
            simulation=file.simulation,
            folder=folder,
            hash=hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest(),
            text=text,
            where=where,
            protocol=protocol,
            setting=setting,
            files=files,
            evaluation=file.evaluation,
            prediction=file.prediction,
            about=file.study.about,
            notices=(*notices, *_notice_drafts(schema)),
        )


@dataclass(frozen=True)
class PublicFiles:
    """The public files that a study names: how one is read and digested, by its name and key, and all names by key."""

    read: Callable[[str, str], pd.DataFrame]
    digest: Callable[[str, str], str]
    names: Mapping[str, str]


DRAFT = "are a draft (draft = true)"
"""What every notice about unconfirmed bounds says, by which a page knows it."""


def _notice_drafts(schema: Schema) -> tuple[str, ...]:
    if not schema.drafts:
        return ()
    return (
        f"the schema's bounds of {name_drafts(schema.drafts)} {DRAFT}: if they were taken from "
        "private records, the stated guarantee does not hold. A simulation runs with them; a study between "
        "organisations is refused until each is replaced by public knowledge and its mark is deleted",
    )


def _describe_party(method: Method, party: str, role_of: Mapping[str, str]) -> dict[str, Any]:
    columns = method.given_columns.get(party)
    return {
        **({} if columns is None else {"columns": list(columns)}),
        **({"role": role_of[party]} if party in role_of else {}),
    }


def _read_identity(keys: Mapping[str, str], table: str, where: str) -> PublicIdentity:
    try:
        return PublicIdentity.from_texts(keys)
    except (KeyError, ValueError):
        raise StudyError(
            f"{where}: {table}.keys must hold sign, mlkem and x25519 as hexadecimal text; print them with: "
            "comity keys show FILE",
            key=f"{table}.keys",
        ) from None
