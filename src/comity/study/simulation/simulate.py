"""A protocol over the records of these parties, on this machine: keywords become what is agreed on and what each holds.

A study file goes another way to the same run (`comity.study.simulation.run`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from comity.data import LocalRecords, Records, Schema, explain
from comity.entropy import derive
from comity.errors import StudyError
from comity.federation.agreement import Agreement
from comity.federation.coordinator.parties import Progress
from comity.federation.declare.consortium import Consortium, default_colluders
from comity.federation.declare.evaluation import split_budget
from comity.federation.protocol import Protocol
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Loss, loss_of
from comity.privacy.unit import Neighbours, Unit
from comity.study.local.chance import secret_of
from comity.study.local.consortium import OpenLedger
from comity.study.local.stacks import REAL_HOSTS, runs_as_stacks
from comity.study.records.encodings import encoded, encoding_of
from comity.study.records.local_models import local_models
from comity.study.records.material import Material
from comity.study.records.sources import sentences
from comity.study.results.outcome import Outcome
from comity.study.simulation.ledgers import Grant, in_memory
from comity.study.simulation.simulated import require_possible, simulated

Data = pd.DataFrame | LocalRecords


def simulate(  # noqa: PLR0913 (public interface: a keyword for each setting of a study)
    protocol: Protocol,
    *,
    parties: Mapping[str, Data],
    epsilon: float,
    delta: float = 0.0,
    schema: Schema | None = None,
    unit: str = "party",
    neighbours: str = "replace",
    colluders: int | None = None,
    dropouts: int = 0,
    roles: Mapping[str, Sequence[str]] | None = None,
    evaluation: Mapping[str, float | None] | None = None,
    study: str = "study",
    study_hash: str | None = None,
    seed: int | None = None,
    test: pd.DataFrame | Records | None = None,
    models: Any = None,
    grant: Grant = None,
    ledgers: Mapping[str, Ledger] | None = None,
    settings: Mapping[str, Any] | None = None,
    hosts: bool = True,
    journal: Path | None = None,
    run_id: str | None = None,
    progress: Progress | None = None,
    baselines: bool = True,
    results: bool | None = None,
    repeats: int = 0,
) -> Outcome:
    """Run a protocol over these parties' records, as `simulated` says.

    `ledgers` are the parties' own, in files; where none is given a party's ledger lives in memory, limited to `grant`.
    `models` are local models, one for all parties or by party (`comity.study.records.local_models`). Where
    `colluders` is left out it is one, as long as another party stays honest. `roles` names the parties of each role
    that the method has. `evaluation` measures the model under privacy on records that are set aside: {} for the
    defaults, or "share" of the records and, for whole parties, "budget" (a share of the loss). Without `hosts` few
    parties run as stacks too, as many do: the same contributions and noise, without masks, messages and a ledger each,
    in a fraction of the time; the result says so. `repeats` runs it so many times again with fresh simulated noise on
    the same records, for mean, spread and worst of its figures (`comity.study.simulation.repeated`).
    """
    if not parties:
        raise StudyError("a simulation needs at least one party, found none")
    loss: Loss = loss_of(epsilon, delta)
    if not epsilon > 0:
        raise StudyError(f"privacy.epsilon must be positive, found {epsilon}", key="privacy.epsilon")
    terms = None
    if evaluation is not None:
        loss, terms = split_budget(loss, Unit(unit), Neighbours(neighbours), **evaluation)
        protocol = protocol.on_training_part(terms)
    consortium = Consortium(
        parties=tuple(parties),
        loss=loss,
        evaluation=terms,
        unit=Unit(unit),
        neighbours=Neighbours(neighbours),
        colluders=default_colluders(len(parties), dropouts) if colluders is None else colluders,
        dropouts=dropouts,
        roles={role: tuple(names) for role, names in (roles or {}).items()},
        schema=schema,
    )
    # Nobody wrote a study, so that chance names it; a seed that sets records aside names the same one again.
    named = study_hash or derive(secret_of(None if terms is None else seed), study).hex()
    agreed = Agreement(named, protocol, consortium, study)
    require_possible(agreed, hosts=hosts)
    if (ledgers or journal is not None) and runs_as_stacks(len(parties), hosts=hosts):
        raise StudyError(
            "a simulation in stacks of parties keeps its ledger and its journal in memory; leave ledgers and "
            f"journal out, or run at most {REAL_HOSTS} parties with hosts"
        )
    outcome = simulated(
        agreed,
        material_of(agreed, parties, test, models),
        ledgers=_given(ledgers or {}, in_memory(agreed, grant, delta)),
        seed=seed,
        run_id=run_id,
        journal=journal,
        progress=progress,
        hosts=hosts,
        results=results,
        baselines=baselines,
        repeats=repeats,
    )
    return replace(outcome, settings=dict(settings or {}))


def material_of(
    agreed: Agreement, parties: Mapping[str, Data], test: pd.DataFrame | Records | None, models: Any
) -> Material:
    """What the parties of a simulation hold, from frames or encoded records."""
    protocol, consortium = agreed.protocol, agreed.consortium
    held = {
        party: encoded(protocol, data, party, party=party) if isinstance(data, pd.DataFrame) else data
        for party, data in parties.items()
    }
    odd = [
        finding
        for party, data in parties.items()
        if isinstance(data, pd.DataFrame) and len(parties) <= REAL_HOSTS
        for finding in explain(encoding_of(protocol, party, party).schema, data, party, unit=consortium.unit.value)
    ]
    tested = encoded(protocol, test, "test") if isinstance(test, pd.DataFrame) else test
    return Material(held, tested, local_models(protocol, consortium, models), sentences(odd))


def _given(ledgers: Mapping[str, Ledger], otherwise: OpenLedger) -> OpenLedger:
    return lambda party: ledgers.get(party) or otherwise(party)
