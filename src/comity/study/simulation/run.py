"""A study file run as a simulation, with its ledgers and its journal in a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from comity.errors import BudgetExceeded, StudyError
from comity.federation.agreement import Agreement
from comity.federation.coordinator.parties import Progress
from comity.privacy.ledger import Ledger
from comity.privacy.unit import Neighbours, Unit
from comity.study.local.consortium import OpenLedger
from comity.study.local.stacks import runs_as_stacks
from comity.study.records.gather import gather
from comity.study.records.local_models import local_models
from comity.study.records.material import Material
from comity.study.records.same_records import require_same
from comity.study.results.outcome import Guarantee, Outcome
from comity.study.simulation.grants import grant_of, grants_of, require_grant
from comity.study.simulation.ledgers import in_folder, in_memory
from comity.study.simulation.simulate import Data, material_of
from comity.study.simulation.simulated import simulated
from comity.study.study import Study


def run_study(
    study: Study,
    *,
    seed: int | None = None,
    folder: Path | None = None,
    run_id: str | None = None,
    progress: Progress | None = None,
    material: Material | None = None,
    frames: Mapping[str, Data] | None = None,
    test: pd.DataFrame | None = None,
    models: Any = None,
    ledgers: Mapping[str, Ledger] | None = None,
    results: bool | None = None,
    repeats: int = 0,
) -> Outcome:
    """Simulate a study as its file says. The same folder and run id again resume it, and nothing is drawn twice.

    Without a folder, or where parties run as stacks, sites and journal live in memory and end with the process.
    `frames` are the parties' records by name, in place of those that the file names; `test` are records to measure on,
    `models` local models and `ledgers` the parties' own ledgers. A folder whose run began with other records
    is refused: steps that ran and steps that are to come would not belong together. `results` and `repeats` are as in
    `simulated`.
    """
    if frames is not None:
        material = _of_frames(study, frames, test)
    elif test is not None:
        raise StudyError("test records come with the parties' frames; give frames too, or set simulation.test")
    if material is None:
        if progress is not None:
            progress("reading data")
        material = gather(study)
    require_grant(study)
    agreed = agreed_over(study, material)
    if models is not None:
        material = replace(material, models=local_models(agreed.protocol, agreed.consortium, models))
    lasting = folder if can_resume(study, material) else None
    grants, delta = grants_of(study, agreed.consortium), study.privacy.delta
    if lasting is not None:
        require_same(study, material, lasting)
    try:
        outcome = simulated(
            agreed,
            material,
            ledgers=_given(
                ledgers or {},
                in_memory(agreed, grants, delta) if lasting is None else in_folder(agreed, grants, delta, lasting),
            ),
            seed=seed,
            run_id=run_id,
            journal=None if lasting is None else lasting / "journal.sqlite",
            progress=progress,
            hosts=study.simulation.hosts,
            results=results,
            baselines=study.simulation.baselines,
            repeats=repeats,
        )
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
    return replace(
        outcome,
        guarantee=_with_counted_sizes(study, outcome.guarantee),
        settings=settings_of(study),
        findings=(*study.notices, *outcome.findings),
    )


def _with_counted_sizes(study: Study, guarantee: Guarantee) -> Guarantee:
    """Withdraw the claim where sizes were counted and a neighbour may have others: nothing covers an exact count.

    A record that is replaced leaves every size as it is. One that is added or removed does not, nor does a whole party
    that is replaced.
    """
    same_sizes = study.privacy.unit is not Unit.PARTY and study.privacy.neighbours is Neighbours.REPLACE
    if not study.method.sizes_were_counted or same_sizes:
        return guarantee
    return replace(guarantee, claim="not private as claimed: sizes were counted from the records; declare them")


def _of_frames(study: Study, frames: Mapping[str, Data], test: pd.DataFrame | None) -> Material:
    study.plan()
    names = list(frames) if isinstance(study.parties, int) else list(study.parties)
    if sorted(names) != sorted(frames) or (isinstance(study.parties, int) and len(names) != study.parties):
        raise StudyError(
            f"{study.where}: frames must hold one table for each of {study.consortium.size} parties, found "
            f"{', '.join(map(str, frames)) or 'none'}",
            key="parties",
        )
    agreed = study.agreed
    if isinstance(study.parties, int):
        agreed = replace(agreed, consortium=replace(agreed.consortium, parties=tuple(names)))
    return material_of(agreed, {name: frames[name] for name in names}, test, None)


def _given(ledgers: Mapping[str, Ledger], otherwise: OpenLedger) -> OpenLedger:
    return lambda party: ledgers.get(party) or otherwise(party)


def agreed_over(study: Study, material: Material) -> Agreement:
    """What is agreed on, by the parties that hold this material: a study that counts its parties leaves their names to
    the data."""
    agreed = study.agreed
    if not isinstance(study.parties, int):
        return agreed
    return replace(agreed, consortium=replace(agreed.consortium, parties=tuple(material.parties)))


def can_resume(study: Study, material: Material) -> bool:
    """Whether each party has a host, with a store that outlives the process; stacks of parties have none."""
    return not runs_as_stacks(len(material.parties), hosts=study.simulation.hosts)


def settings_of(study: Study) -> dict[str, object]:
    """Every setting that the run used, by dotted key, whether written or left to its default; no other variant's."""
    tables = {"privacy": study.privacy, study.protocol_name: study.method, "simulation": study.simulation}
    every = {
        f"{name}.{key}": value for name, table in tables.items() for key, value in table.model_dump(mode="json").items()
    }
    known = study.settings()
    measured = {key: value for key, value in known.items() if key.startswith("evaluation.")}
    return measured | {key: value for key, value in every.items() if key in known or key.startswith("simulation.")}
