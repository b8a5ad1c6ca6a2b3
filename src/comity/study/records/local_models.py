"""Which local model each simulated party votes with. Everything that can be wrong is found before anything is spent."""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, runtime_checkable

import pandas as pd

from comity.errors import StudyError, did_you_mean
from comity.federation.declare.consortium import Consortium
from comity.federation.protocol import Protocol
from comity.learn.local_models import LIBRARIES, Ballot, LocalModel, as_local_model, from_name, from_predictions
from comity.study.study import Study
from comity.study.tables import ModelTable


@runtime_checkable
class _Voting(typing.Protocol):
    def ballot(self, consortium: Consortium) -> Ballot | None: ...


# Stands for every party without an entry.
DEFAULT = "default"


def build_local_models(protocol: Protocol, consortium: Consortium, models: Any) -> dict[str, LocalModel]:
    """Local models by party. `models` is one model for all, or a mapping from parties (and `default`) to theirs:
    estimators, callables, frames or files of predictions. A party without one has the protocol's built-in classifier.
    """
    if models is None or (isinstance(models, Mapping) and not models):
        return {}
    ballot = find_ballot(protocol, consortium)
    if not isinstance(models, Mapping):
        models = {DEFAULT: models}
    # Very many parties share one model: it is made once.
    by_name = {name: _build(value, ballot, name) for name, value in models.items()}
    return _by_party(by_name, consortium.parties, "models")


def load_local_models(study: Study, parties: Sequence[str]) -> dict[str, LocalModel]:
    """Local models by party, as `[simulation.models]` says; relative paths start at the study's folder."""
    tables = study.simulation.models or {}
    if not tables:
        return {}
    try:
        ballot = find_ballot(study.protocol, study.consortium)
    except StudyError as error:
        raise StudyError(f"{study.where}: simulation.models: {error}", key="simulation.models") from error
    by_name = {name: _from_table(study, name, table, ballot) for name, table in tables.items()}
    return _by_party(by_name, parties, f"{study.where}: simulation.models")


def find_ballot(protocol: Protocol, consortium: Consortium) -> Ballot:
    """What local models vote on; a protocol in which they would have no effect refuses them."""
    ballot = protocol.ballot(consortium) if isinstance(protocol, _Voting) else None
    if ballot is None:
        raise StudyError(
            f"{getattr(protocol, 'title', protocol.name)} takes no local models here: its parties vote on nothing; "
            "leave models out, or choose settings under which parties vote"
        )
    return ballot


def _build(value: Any, ballot: Ballot, name: str) -> LocalModel:
    if isinstance(value, str | Path | pd.DataFrame):
        return from_predictions(value, classes=ballot.classes, rows=len(ballot.auxiliary), where=f"models[{name!r}]")
    try:
        return as_local_model(value)
    except StudyError as error:
        raise StudyError(f"models[{name!r}]: {error}") from error


def _from_table(study: Study, name: str, table: ModelTable, ballot: Ballot) -> LocalModel:
    where = f"{study.where}: simulation.models.{name}"
    if table.predictions is not None:
        return from_predictions(
            table.predictions, classes=ballot.classes, rows=len(ballot.auxiliary), where=where, base=study.folder
        )
    assert table.model is not None
    try:
        return from_name(table.model, soft=table.soft, libraries=LIBRARIES, where=where, **table.parameters)
    except StudyError as error:
        sentence = str(error)
        raise StudyError(
            sentence if sentence.startswith(where) else f"{where}: {sentence}", key=f"simulation.models.{name}"
        ) from error


def _by_party(by_name: Mapping[str, LocalModel], parties: Sequence[str], where: str) -> dict[str, LocalModel]:
    unknown = [name for name in by_name if name != DEFAULT and name not in parties]
    if unknown:
        raise StudyError(
            f"{where}: {unknown[0]!r} is no party of the study{did_you_mean(unknown[0], [*parties[:1000], DEFAULT])}",
            key="simulation.models",
        )
    chosen = {party: by_name.get(party, by_name.get(DEFAULT)) for party in parties}
    return {party: model for party, model in chosen.items() if model is not None}
