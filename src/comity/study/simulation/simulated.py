"""A run of what is agreed on, over what simulated parties hold, with the hosts and ledgers that a deployment has.

Up to 1,000 parties: real hosts over the local channel. Above, or with `hosts=False`: stacks of parties
(`comity.study.local.cohort`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from comity.data import StreamedRecords
from comity.errors import StudyError
from comity.federation.agreement import Agreement
from comity.federation.coordinator.parties import Progress
from comity.federation.coordinator.transcript import Transcript
from comity.federation.evaluation.assessment import Assessment, Baseline
from comity.federation.messages.received import Received
from comity.federation.protocol import presented_to
from comity.study.local.chance import new_run_id, noise_source
from comity.study.local.cohort import Cohort, stacks
from comity.study.local.consortium import LocalConsortium, OpenLedger
from comity.study.local.stacks import REAL_HOSTS, require_no_evaluation, require_stacks, runs_as_stacks
from comity.study.records.material import Material
from comity.study.results.outcome import Account, Outcome
from comity.study.simulation.ledgers import account
from comity.study.simulation.repeated import check_repeats, repeated

RESULTS = 16
"""Up to so many parties a simulation keeps what each of them received, without being asked."""


def simulated(
    agreed: Agreement,
    material: Material,
    *,
    ledgers: OpenLedger,
    seed: int | None = None,
    run_id: str | None = None,
    journal: Path | None = None,
    progress: Progress | None = None,
    hosts: bool = True,
    results: bool | None = None,
    baselines: bool = True,
    repeats: int = 0,
) -> Outcome:
    """Run the agreed protocol in its consortium. The same run id, journal and ledgers again resume it.

    Without a seed the noise is drawn as released; with one it is fast, reproducible and protects nobody. `results` asks
    for what each party received beside what the coordinator has; where it is left out that is kept for at most
    `RESULTS` parties. Without `hosts` few parties run as stacks too. What can be refused from public figures is refused
    before any ledger hears of it.
    """
    started, consortium = time.perf_counter(), agreed.consortium
    check_repeats(repeats, material.test is not None)
    require_possible(agreed, hosts=hosts)
    stacked = runs_as_stacks(consortium.size, hosts=hosts)
    _require_memory(agreed, material, stacked=stacked)
    run = run_id or new_run_id()
    if stacked:
        ran = _by_stacks(agreed, material, ledgers, run, seed, progress)
    else:
        kept = consortium.size <= RESULTS if results is None else results
        ran = _by_hosts(agreed, material, ledgers, run, seed, progress, journal, results=kept)
    outcome = Outcome.of(agreed, ran.released, ran.transcript, run=run, kept=ran.kept, accounts=ran.accounts, seed=seed)
    assessed = _assessed(agreed, material, outcome, baselines=baselines)
    if repeats:
        measured = repeated(agreed, material, count=repeats, seed=seed)
        assessed = replace(assessed, repeats=measured, sections=(*assessed.sections, measured.section()))
    return replace(
        outcome,
        assessment=assessed,
        received=ran.received,
        presented_to={party: presented_to(agreed.protocol, found, consortium) for party, found in ran.received.items()},
        kept={party: agreed.protocol.present_own(found.own, consortium) for party, found in ran.received.items()},
        seconds=time.perf_counter() - started,
        masks=not stacked,
        findings=material.findings,
    )


def require_possible(agreed: Agreement, *, hosts: bool) -> None:
    """Refuse whatever public figures rule out."""
    declaration = agreed.protocol.accepted(agreed.consortium)
    if runs_as_stacks(agreed.consortium.size, hosts=hosts):
        require_stacks(agreed.protocol, declaration, agreed.consortium)
        require_no_evaluation(agreed.consortium)


def _require_memory(agreed: Agreement, material: Material, *, stacked: bool) -> None:
    for held in material.parties.values():
        if isinstance(held, StreamedRecords) and (stacked or not agreed.protocol.streams(agreed.consortium)):
            held.require_memory()
    models = material.models
    if stacked and models and (len(set(map(id, models.values()))) > 1 or len(models) < agreed.consortium.size):
        raise StudyError(
            "a simulation in stacks of parties has one local model for all of them; give one model, or run at most "
            f"{REAL_HOSTS} parties with hosts",
            key="simulation.models",
        )


@dataclass(frozen=True, eq=False)
class _Ran:
    """What a run left: with its coordinator, in its ledgers, and with its parties."""

    released: Mapping[str, Any]
    kept: Mapping[str, Any]
    transcript: Transcript
    accounts: tuple[Account, ...]
    received: Mapping[str, Received] = field(default_factory=dict)


def _by_hosts(
    agreed: Agreement,
    material: Material,
    ledgers: OpenLedger,
    run: str,
    seed: int | None,
    progress: Progress | None,
    journal: Path | None,
    *,
    results: bool,
) -> _Ran:
    local = LocalConsortium.made(
        agreed,
        material.parties,
        run=run,
        ledgers=ledgers,
        seed=seed,
        models=material.models,
        journal=journal,
        progress=progress,
    )
    released, kept = local.execute()
    hosts, consortium = local.hosts, agreed.consortium
    return _Ran(
        released,
        kept,
        local.coordinator.transcript,
        tuple(account(party, host.store.ledger, consortium) for party, host in hosts.items()),
        {party: local.received(party) for party in hosts} if results else {},
    )


def _by_stacks(
    agreed: Agreement, material: Material, ledgers: OpenLedger, run: str, seed: int | None, progress: Progress | None
) -> _Ran:
    records, consortium = list(material.parties.values()), agreed.consortium
    cohort = Cohort(
        agreed.protocol,
        consortium,
        blocks=lambda most: stacks(records, most),
        noise=noise_source(seed, "cohort"),
        ledger=ledgers(consortium.parties[0]),
        study=f"{agreed.title} {agreed.study[:12]}",
        run=run,
        progress=progress,
        local=next(iter(material.models.values()), None),
    )
    released = cohort.released()
    return _Ran(released, cohort.kept, cohort.transcript, (account("each party", cohort.ledger, consortium),))


def _assessed(agreed: Agreement, material: Material, outcome: Outcome, *, baselines: bool) -> Assessment:
    """How good the result is on the test records, beside fits on all records, which need all of them at once; and what
    share of them the method's bounds cut."""
    if material.test is None:
        return Assessment()
    train = material.whole if baselines else None
    found = agreed.protocol.assess(outcome.presented, train, material.test)
    if train is not None:
        cut = agreed.protocol.clipped_fractions(outcome.released, train, agreed.consortium)
        found = replace(found, figures=(*found.figures, *cut))
    if not material.models:
        return found
    return replace(found, baselines=tuple(replace(one, note=_without_models(one)) for one in found.baselines))


def _without_models(baseline: Baseline) -> str:
    """What is compared with is trained by the protocol, which does not see local models; the constant has none."""
    return baseline.note if baseline.name == "constant" else f"{baseline.note}; built-in classifier".lstrip("; ")
