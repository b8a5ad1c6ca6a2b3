"""A study file run as a simulation, with its ledgers and its journal in a run folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from comity.errors import BudgetExceeded
from comity.federation.agreement import Agreement
from comity.federation.coordinator.parties import Progress
from comity.study.local.stacks import runs_as_stacks
from comity.study.records.gather import gather
from comity.study.records.local_models import local_models
from comity.study.records.material import Material
from comity.study.records.same_records import require_same
from comity.study.results.outcome import Outcome
from comity.study.simulation.grants import grant_of, grants_of, require_grant
from comity.study.simulation.ledgers import in_folder, in_memory
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
    models: Any = None,
    results: bool | None = None,
    repeats: int = 0,
) -> Outcome:
    """Simulate a study as its file says. The same folder and run id again resume it, and nothing is drawn twice.

    Without a folder, or where parties run as stacks, sites and journal live in memory and end with the process.
    `models` stand in for those of the file, where they are made in Python. A folder whose run began with other records
    is refused: steps that ran and steps that are to come would not belong together. `results` and `repeats` are as in
    `simulated`.
    """
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
            ledgers=in_memory(agreed, grants, delta) if lasting is None else in_folder(agreed, grants, delta, lasting),
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
    return replace(outcome, settings=settings_of(study))


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
    tables = {"privacy": study.privacy, study.protocol_name: study.parameters, "simulation": study.simulation}
    every = {
        f"{name}.{key}": value for name, table in tables.items() for key, value in table.model_dump(mode="json").items()
    }
    known = study.settings()
    measured = {key: value for key, value in known.items() if key.startswith("evaluation.")}
    return measured | {key: value for key, value in every.items() if key in known or key.startswith("simulation.")}
