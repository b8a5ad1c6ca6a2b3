"""A simulation: a whole consortium on one machine, with the hosts, ledgers and messages of a deployment.

`run_study` simulates a study file, `simulate` a protocol over the records of parties; both end in `run_simulation`.
Up to 1,000 parties have a host each over the local channel. More, or with `hosts=False`, run as stacks of parties
(`comity.study.local.cohort`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from comity.data import Records, Schema, StreamedRecords
from comity.entropy import derive
from comity.errors import BudgetExceeded, StudyError
from comity.federation.agreement import Agreement
from comity.federation.coordinator.parties import Progress
from comity.federation.declare.consortium import Consortium, default_colluders
from comity.federation.declare.evaluation import split_budget
from comity.federation.evaluation.assessment import Assessment, Baseline
from comity.federation.evaluation.subgroups import Subgroup, measure_subgroups
from comity.federation.protocol import Protocol, presented_to
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Loss, loss_of
from comity.privacy.unit import Neighbours, Unit
from comity.study.local.cohort import Cohort, stack_parties
from comity.study.local.consortium import LocalConsortium, OpenLedger, new_run_id, noise_source, secret_of
from comity.study.local.stacks import REAL_HOSTS, require_stacks, runs_as_stacks
from comity.study.records.groups import PARTY, check_groups, label_groups
from comity.study.records.local_models import build_local_models
from comity.study.records.party_data import Data, PartyData, encode_party_data, load_party_data, require_same_data
from comity.study.results.result import Guarantee, Result
from comity.study.simulation.adaptations import adapt_owners, add_adaptations
from comity.study.simulation.ledgers import (
    Grant,
    grants_by_party,
    ledgers_in_folder,
    ledgers_in_memory,
    read_account,
    require_grant,
    usual_grant,
)
from comity.study.simulation.repeats import check_repeats, repeat_simulation
from comity.study.study import Study


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a study file says beside its method, parties, loss and unit. `simulate` takes it in place of a file.

    Without `colluders` one party may collude, as long as another stays honest. `roles` names the parties of each of
    the method's roles. `evaluation` measures the model under privacy on records that are held out: {} for the
    defaults, or "share" of the records and, for whole parties, "budget" (a share of the loss). `grant` limits the
    ledger of each party that brings none. Without a `hash` the study's id is random.
    """

    name: str = "study"
    hash: str | None = None
    schema: Schema | None = None
    neighbours: str = "replace"
    colluders: int | None = None
    dropouts: int = 0
    roles: Mapping[str, Sequence[str]] = field(default_factory=dict)
    evaluation: Mapping[str, float | None] | None = None
    grant: Grant = None


MAX_KEPT_RESULTS = 16
"""Up to this many parties a simulation keeps what each of them received without being asked."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How this machine runs a simulation, whatever the parties agreed on.

    Without `hosts` few parties run as stacks too, as many do: with the same contributions and noise, but without masks,
    messages and a ledger each, in a fraction of the time; the result says so. `baselines` fits other models on all
    records, to compare the result with, and adapts the result to each owner that has its results kept. `results` keeps
    what each party received; None keeps it for at most `MAX_KEPT_RESULTS` parties. `repeats` runs the protocol that
    many more times with fresh simulated noise on the same records, for mean, spread and worst of its figures
    (`comity.study.simulation.repeats`). `ledgers` are the parties' own; a party without one has a ledger in memory. The
    same `run_id`, `journal` and `ledgers` again resume a run.
    """

    hosts: bool = True
    baselines: bool = True
    results: bool | None = None
    repeats: int = 0
    ledgers: Mapping[str, Ledger] | OpenLedger = field(default_factory=dict)
    run_id: str | None = None
    journal: Path | None = None
    progress: Progress | None = None


def simulate(
    protocol: Protocol,
    *,
    parties: Mapping[str, Data],
    epsilon: float,
    delta: float = 0.0,
    unit: str = "party",
    seed: int | None = None,
    test: pd.DataFrame | Records | None = None,
    models: Any = None,
    terms: Terms | None = None,
    options: RunOptions | None = None,
) -> Result:
    """Run a protocol over these parties' records, without a study file.

        simulate(protocol, parties=records, epsilon=1, terms=Terms(dropouts=1), options=RunOptions(hosts=False))

    Without a seed the noise is drawn as in a release; with one it is fast, reproducible and protects nobody. `test` are
    records to measure on. `models` are local models, one for all parties or by party
    (`comity.study.records.local_models`).
    """
    terms, options = terms or Terms(), options or RunOptions()
    if not parties:
        raise StudyError("a simulation needs at least one party, found none")
    loss: Loss = loss_of(epsilon, delta)
    if not epsilon > 0:
        raise StudyError(f"privacy.epsilon must be positive, found {epsilon}", key="privacy.epsilon")
    neighbours, evaluation = Neighbours(terms.neighbours), None
    if terms.evaluation is not None:
        loss, evaluation = split_budget(loss, Unit(unit), neighbours, **terms.evaluation)
        protocol = protocol.on_training_part(evaluation)
    consortium = Consortium(
        parties=tuple(parties),
        loss=loss,
        evaluation=evaluation,
        unit=Unit(unit),
        neighbours=neighbours,
        colluders=default_colluders(len(parties), terms.dropouts) if terms.colluders is None else terms.colluders,
        dropouts=terms.dropouts,
        roles={role: tuple(names) for role, names in terms.roles.items()},
        schema=terms.schema,
    )
    # Parties that hold out the same records choose them by the study's id: a seed gives the same id again.
    study = terms.hash or derive(secret_of(None if evaluation is None else seed), terms.name).hex()
    agreement = Agreement(study, protocol, consortium, terms.name)
    require_possible(agreement, hosts=options.hosts)
    if (options.ledgers or options.journal is not None) and runs_as_stacks(len(parties), hosts=options.hosts):
        raise StudyError(
            "a simulation in stacks of parties keeps its ledger and its journal in memory; leave ledgers and "
            f"journal out, or run at most {REAL_HOSTS} parties with hosts"
        )
    ledgers = _own_or_opened(options.ledgers, ledgers_in_memory(agreement, terms.grant, delta))
    data = encode_party_data(agreement, parties, test, models)
    return run_simulation(agreement, data, seed=seed, options=replace(options, ledgers=ledgers))


def _own_or_opened(ledgers: Mapping[str, Ledger] | OpenLedger, otherwise: OpenLedger) -> OpenLedger:
    return ledgers if callable(ledgers) else lambda party: ledgers.get(party) or otherwise(party)


def run_study(
    study: Study,
    *,
    seed: int | None = None,
    folder: Path | None = None,
    run_id: str | None = None,
    progress: Progress | None = None,
    data: PartyData | None = None,
    frames: Mapping[str, Data] | None = None,
    test: pd.DataFrame | None = None,
    models: Any = None,
    ledgers: Mapping[str, Ledger] | None = None,
    repeats: int = 0,
    evaluate_by: Sequence[str] = (),
) -> Result:
    """Simulate a study as its file says. The same folder and run id again resume it, and nothing is drawn twice.

    Without a folder, or where parties run as stacks, sites and journal live in memory and end with the process.
    `frames` are the parties' records by name, in place of those that the file names; `test` are records to measure on,
    `models` local models and `ledgers` the parties' own ledgers. A folder whose run began with other records
    is refused: its finished steps would not belong to the remaining ones. `repeats` are those of `RunOptions`.
    `evaluate_by` takes the place of the key of [simulation]; a column `party` of `test` names each record's party.
    """
    if evaluate_by:
        simulation = study.simulation.model_copy(update={"evaluate_by": list(evaluate_by)})
        study = replace(study, simulation=simulation)
    if frames is not None:
        data = _encode_frames(study, frames, test)
    elif test is not None:
        raise StudyError("test records come with the parties' frames; give frames too, or set simulation.test")
    if data is None:
        if progress is not None:
            progress("reading data")
        data = load_party_data(study)
    require_grant(study)
    agreement = _agreement_between(study, data.parties)
    if models is not None:
        data = replace(data, models=build_local_models(agreement.protocol, agreement.consortium, models))
    grants, delta = grants_by_party(study, agreement), study.privacy.delta
    if folder is None or not can_resume(study, data):
        journal, opened = None, ledgers_in_memory(agreement, grants, delta)
    else:
        require_same_data(study, data, folder)
        journal, opened = folder / "journal.sqlite", ledgers_in_folder(agreement, grants, delta, folder)
    options = RunOptions(
        hosts=study.simulation.hosts,
        baselines=study.simulation.baselines,
        repeats=repeats,
        ledgers=_own_or_opened(ledgers or {}, opened),
        run_id=run_id,
        journal=journal,
        progress=progress,
    )
    try:
        result = run_simulation(agreement, data, seed=seed, options=options)
    except BudgetExceeded as refusal:
        grant = usual_grant(study)
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
        result,
        guarantee=_check_counted_sizes(study, result.guarantee),
        settings=settings_of(study),
        findings=(*study.notices, *result.findings),
    )


def _check_counted_sizes(study: Study, guarantee: Guarantee) -> Guarantee:
    """Withdraw the claim if sizes were counted and neighbouring data may have other sizes: no noise covers an exact
    count.

    Replacing a record changes no size. Adding or removing one does, and so does replacing a whole party.
    """
    same_sizes = study.privacy.unit is not Unit.PARTY and study.privacy.neighbours is Neighbours.REPLACE
    if not study.method.sizes_were_counted or same_sizes:
        return guarantee
    return replace(guarantee, claim="not private as claimed: sizes were counted from the records; declare them")


def _encode_frames(study: Study, frames: Mapping[str, Data], test: pd.DataFrame | None) -> PartyData:
    study.plan()
    names = list(frames) if isinstance(study.parties, int) else list(study.parties)
    if sorted(names) != sorted(frames) or (isinstance(study.parties, int) and len(names) != study.parties):
        raise StudyError(
            f"{study.where}: frames must hold one table for each of {study.consortium.size} parties, found "
            f"{', '.join(map(str, frames)) or 'none'}",
            key="parties",
        )
    by, of_parties = study.simulation.evaluate_by, test is not None and PARTY in test.columns
    check_groups(study, by, of_parties=of_parties)
    data = encode_party_data(_agreement_between(study, names), {name: frames[name] for name in names}, test, None)
    if test is None or not by:
        return data
    owners = [str(owner) for owner in test[PARTY]] if of_parties else None
    return replace(data, groups=label_groups(study.schema, by, test, "test", owners, names))


def _agreement_between(study: Study, parties: Iterable[str]) -> Agreement:
    """The study's agreement. If the study only counts its parties, these are their names."""
    agreement = study.agreement
    if not isinstance(study.parties, int):
        return agreement
    return replace(agreement, consortium=replace(agreement.consortium, parties=tuple(parties)))


def can_resume(study: Study, data: PartyData) -> bool:
    """Whether a folder can resume the run: each party needs a host with a store, and stacks of parties have none."""
    return not runs_as_stacks(len(data.parties), hosts=study.simulation.hosts)


def settings_of(study: Study) -> dict[str, object]:
    """Every setting that the run used, by dotted key, whether written or left to its default; no keys of other
    variants."""
    tables = {"privacy": study.privacy, study.protocol_name: study.method, "simulation": study.simulation}
    every = {
        f"{name}.{key}": value for name, table in tables.items() for key, value in table.model_dump(mode="json").items()
    }
    known = study.settings()
    measured = {key: value for key, value in known.items() if key.startswith("evaluation.")}
    return measured | {key: value for key, value in every.items() if key in known or key.startswith("simulation.")}


def run_simulation(
    agreement: Agreement, data: PartyData, *, seed: int | None = None, options: RunOptions | None = None
) -> Result:
    """Run the agreed protocol in its consortium. What public figures rule out is refused before a ledger is opened."""
    options = options or RunOptions()
    started, consortium = time.perf_counter(), agreement.consortium
    check_repeats(options.repeats, data.test is not None)
    require_possible(agreement, hosts=options.hosts)
    stacked = runs_as_stacks(consortium.size, hosts=options.hosts)
    _require_memory(agreement, data, stacked=stacked)
    result = (_run_stacks if stacked else _run_hosts)(agreement, data, seed, options)
    assessment = _assess(agreement, data, result, baselines=options.baselines)
    if options.baselines and data.test is not None:
        adapted = adapt_owners(agreement.protocol, data.parties, result.presented_to)
        result, assessment = add_adaptations(result, assessment, adapted)
    if options.repeats:
        repeats = repeat_simulation(agreement, data, count=options.repeats, seed=seed)
        assessment = replace(assessment, repeats=repeats, sections=(*assessment.sections, repeats.section()))
    return replace(result, assessment=assessment, seconds=time.perf_counter() - started, findings=data.warnings)


def require_possible(agreement: Agreement, *, hosts: bool) -> None:
    """Refuse what public figures rule out, and what this installation can't compute."""
    agreement.protocol.require_installed()
    declaration = agreement.accepted
    if runs_as_stacks(agreement.consortium.size, hosts=hosts):
        require_stacks(agreement.protocol, declaration, agreement.consortium)


def _require_memory(agreement: Agreement, data: PartyData, *, stacked: bool) -> None:
    for records in data.parties.values():
        if isinstance(records, StreamedRecords) and (stacked or not agreement.protocol.streams(agreement.consortium)):
            records.require_memory()
    models = data.models
    if stacked and models and (len(set(map(id, models.values()))) > 1 or len(models) < agreement.consortium.size):
        raise StudyError(
            "a simulation in stacks of parties has one local model for all of them; give one model, or run at most "
            f"{REAL_HOSTS} parties with hosts",
            key="simulation.models",
        )


def _run_hosts(agreement: Agreement, data: PartyData, seed: int | None, options: RunOptions) -> Result:
    run, protocol, consortium = options.run_id or new_run_id(), agreement.protocol, agreement.consortium
    local = LocalConsortium.create(
        agreement,
        data.parties,
        run=run,
        ledgers=_own_or_opened(options.ledgers, ledgers_in_memory(agreement)),
        seed=seed,
        models=data.models,
        journal=options.journal,
        progress=options.progress,
    )
    released, kept = local.execute()
    keeps_results = consortium.size <= MAX_KEPT_RESULTS if options.results is None else options.results
    received = {party: local.received(party) for party in local.hosts} if keeps_results else {}
    return replace(
        Result.of(agreement, released, local.coordinator.transcript, run=run, kept=kept, seed=seed),
        accounts=tuple(read_account(party, host.store.ledger, consortium) for party, host in local.hosts.items()),
        received=received,
        presented_to={party: presented_to(protocol, one, consortium) for party, one in received.items()},
        kept=local.present_own() if protocol.assesses_own else local.present_own(received),
    )


def _run_stacks(agreement: Agreement, data: PartyData, seed: int | None, options: RunOptions) -> Result:
    records, consortium = list(data.parties.values()), agreement.consortium
    run, ledgers = options.run_id or new_run_id(), _own_or_opened(options.ledgers, ledgers_in_memory(agreement))
    cohort = Cohort(
        agreement.protocol,
        consortium,
        blocks=lambda most: stack_parties(records, most),
        noise=noise_source(seed, "cohort"),
        ledger=ledgers(consortium.parties[0]),
        study=f"{agreement.title} {agreement.study[:12]}",
        run=run,
        progress=options.progress,
        local=next(iter(data.models.values()), None),
    )
    released = cohort.execute()
    return replace(
        Result.of(agreement, released, cohort.transcript, run=run, kept=cohort.kept, seed=seed),
        accounts=(read_account("each party", cohort.ledger, consortium),),
        masks=False,
    )


def _assess(agreement: Agreement, data: PartyData, result: Result, *, baselines: bool) -> Assessment:
    """Measure the result on the test records. If the parties' records are all in memory, compare it with fits on them,
    and add the shares of them that the method's bounds clip."""
    if data.test is None:
        return Assessment()
    train = data.in_memory if baselines else None
    assessed = agreement.protocol.assess(result.presented, train, data.test)
    assessment = replace(assessed, tested=assessed.tested or len(data.test))
    if agreement.protocol.assesses_own:
        assessment = agreement.protocol.assess_own(assessment, result.kept, data.test)
    assessment = replace(assessment, subgroups=_measure_subgroups(agreement, data, result, assessment))
    if train is not None:
        clipped = agreement.protocol.clipped_fractions(result.released, train, agreement.consortium)
        assessment = replace(assessment, figures=(*assessment.figures, *clipped))
    if not data.models:
        return assessment
    noted = tuple(replace(one, note=_note_built_in(one)) for one in assessment.baselines)
    return replace(assessment, baselines=noted)


def _measure_subgroups(
    agreement: Agreement, data: PartyData, result: Result, assessment: Assessment
) -> tuple[Subgroup, ...]:
    assert data.test is not None
    if not data.groups.labels or assessment.error is None:
        return ()
    errors = agreement.protocol.record_errors(result.presented, result.kept, data.test)
    if errors is None:
        return ()
    return measure_subgroups(errors, data.groups.labels, is_share=assessment.is_share, order=data.groups.order)


def _note_built_in(baseline: Baseline) -> str:
    """A baseline's note beside local models: the protocol trains baselines with its built-in classifier. The constant
    trains none."""
    return baseline.note if baseline.name == "constant" else f"{baseline.note}; built-in classifier".lstrip("; ")
