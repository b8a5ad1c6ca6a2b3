"""Simulation of a whole consortium on one machine, with the protocol, hosts and ledgers that a deployment has.

Up to 1,000 parties: real hosts over the local channel. Above, or with `hosts=False`: stacks of parties
(`comity.runtime.local.cohort`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import ROUND_FLOOR, Decimal
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import pandas as pd

from comity.crypto.sealing.sealed import Identity
from comity.data import Held, Records, Schema, StreamedRecords, explain
from comity.data.padded import padded
from comity.entropy import derive, fresh_seed
from comity.errors import Refused, Stopped, StudyError
from comity.federation.assessment import Assessment
from comity.federation.baseline import Baseline
from comity.federation.coordinator.delivery import Received, presented_to
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.parties import Parties, Progress, whole_run
from comity.federation.coordinator.transcript import Transcript
from comity.federation.declaring.agreed import Agreed
from comity.federation.declaring.consortium import COORDINATOR, Consortium
from comity.federation.declaring.declaration import Declaration
from comity.federation.declaring.payers import describe, largest
from comity.federation.declaring.payers import payers as paid_by
from comity.federation.declaring.plan import plan
from comity.federation.declaring.policy import SIMULATION
from comity.federation.evaluation.terms import divided
from comity.federation.owner.host import Host
from comity.federation.owner.store import Store
from comity.federation.protocol import Protocol
from comity.learn.voters.local_model import LocalModel
from comity.privacy.currency import Currency
from comity.privacy.ledger import Ledger
from comity.privacy.ledger.account import currency_for, figure
from comity.privacy.loss import Approx, Loss, Pure
from comity.privacy.randomness import NoiseSource, ReleasedNoise
from comity.privacy.sampling.seeded_draws import SeededDraws
from comity.privacy.unit import Neighbours, Unit
from comity.runtime.local.channel import LocalChannel
from comity.runtime.local.cohort import Block, Cohort
from comity.runtime.local.stacks import REAL_HOSTS, require_no_evaluation, require_stacks, runs_as_stacks
from comity.runtime.records.encodings import encoding_of
from comity.runtime.records.local_models import local_models
from comity.runtime.records.sources import sentences
from comity.runtime.results.outcome import Account, Guarantee, Outcome
from comity.runtime.simulation.repeated import check_repeats, repeated

RESULTS = 16
"""Up to so many parties a simulation keeps what each of them received, without being asked."""

Data = pd.DataFrame | Held


def simulate(
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
    seed: int | None = None,
    test: pd.DataFrame | Records | None = None,
    baselines: bool = True,
    grant: float | Mapping[str, float | Approx] | None = None,
    ledgers: Mapping[str, Ledger] | None = None,
    journal: Path | None = None,
    run_id: str | None = None,
    study: str = "study",
    study_hash: str | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    models: Any = None,
    evaluation: Mapping[str, float | None] | None = None,
    laid_out: bool = False,
    results: bool | None = None,
    hosts: bool = True,
    repeats: int = 0,
) -> Outcome:
    """Run a protocol over these parties' records.

    Without a seed the noise is drawn as released; with one it is fast, reproducible and protects nobody. `ledgers` are
    the parties' own, in files; where none is given a party's ledger lives in memory, limited to `grant`, which is one
    for all or by party, an epsilon at the study's delta or with a delta of its own. `models` are local models, one for
    all parties or by party (`runtime.records.local_models`). Where `colluders` is left out it is one, as long as another
    party stays honest. `roles` names the parties of each role that the method has. `results` asks for what each party
    received beside what the coordinator has; where it is left out that is kept for at most `RESULTS` parties.
    `evaluation` measures the model under privacy on records that are set aside: {} for the defaults, or "share" of the
    records and, for whole parties, "budget" (a share of the loss). A study's protocol is `laid_out` for the records
    that are left; any other is laid out here. Without `hosts` few parties run as stacks too, as many do: the same
    contributions and noise, without masks, messages and a ledger each, in a fraction of the time; the result says so.
    `repeats` runs it so many times again with fresh simulated noise on the same records, for mean, spread and worst of
    its figures (`comity.runtime.simulation.repeated`).
    """
    if not parties:
        raise StudyError("a simulation needs at least one party, found none")
    loss: Loss = Approx(epsilon, delta) if delta else Pure(epsilon)
    if not epsilon > 0:
        raise StudyError(f"privacy.epsilon must be positive, found {epsilon}", key="privacy.epsilon")
    terms = None
    if evaluation is not None:
        loss, terms = divided(loss, Unit(unit), Neighbours(neighbours), **evaluation)
        protocol = protocol if laid_out else protocol.on_training_part(terms)
    who = Consortium(
        parties=tuple(parties),
        loss=loss,
        evaluation=terms,
        unit=Unit(unit),
        neighbours=Neighbours(neighbours),
        colluders=min(1, max(0, len(parties) - dropouts - 1)) if colluders is None else colluders,
        dropouts=dropouts,
        roles={role: tuple(names) for role, names in (roles or {}).items()},
        schema=schema,
    )
    started = time.perf_counter()
    check_repeats(repeats, test is not None)
    # Before any ledger hears of it: what can be refused from public figures costs nothing.
    declaration = protocol.accepted(who)
    stacked = runs_as_stacks(len(parties), hosts=hosts)
    if stacked:
        require_stacks(protocol, declaration)
        require_no_evaluation(who)
    records: dict[str, Held] = {
        party: encoded(protocol, data, party, party=party) if isinstance(data, pd.DataFrame) else data
        for party, data in parties.items()
    }
    for held in records.values():
        if isinstance(held, StreamedRecords) and (stacked or not protocol.streams(who)):
            held.require_memory()
    odd = [
        finding
        for party, data in parties.items()
        if isinstance(data, pd.DataFrame) and len(parties) <= REAL_HOSTS
        for finding in explain(encoding_of(protocol, party, party).schema, data, party, unit=who.unit.value)
    ]
    tested = encoded(protocol, test, "test") if isinstance(test, pd.DataFrame) else test
    local = local_models(protocol, who, models)
    run_id = run_id or new_run_id()
    name_hash = study_hash or derive(_secret_of(None if terms is None else seed), study).hex()
    known = dict(ledgers or {})
    if stacked:
        if known or journal is not None:
            raise StudyError(
                "a simulation in stacks of parties keeps its ledger and its journal in memory; leave ledgers and "
                f"journal out, or run at most {REAL_HOSTS} parties with hosts"
            )
        shared = set(map(id, local.values()))
        if local and (len(shared) > 1 or len(local) < len(parties)):
            raise StudyError(
                "a simulation in stacks of parties has one local model for all of them; give one model, or run at most "
                f"{REAL_HOSTS} parties with hosts",
                key="simulation.models",
            )
        cohort = Cohort(
            protocol,
            who,
            blocks=lambda most: stacks(list(records.values()), most),
            noise=noise_source(seed, "cohort"),
            ledger=Ledger.in_memory(
                unit=who.unit, neighbours=who.neighbours, **granted(grant, delta, declaration, who, who.parties[0])
            ),
            study=f"{study} {name_hash[:12]}",
            run=run_id,
            progress=progress,
            local=next(iter(local.values()), None),
        )
        released, kept = cohort.released(), cohort.kept
        accounts: tuple[Account, ...]
        accounts, transcript = (account("each party", cohort.ledger, delta_of(loss)),), cohort.transcript
        received: dict[str, Received] = {}
    else:
        released, kept, accounts, transcript, received = _with_hosts(
            protocol,
            who,
            records,
            known,
            {party: granted(grant, delta, declaration, who, party) for party in who.parties},
            seed,
            journal,
            run_id,
            name_hash,
            study,
            progress,
            local,
            results=len(parties) <= RESULTS if results is None else results,
        )
    outcome = outcome_of(
        protocol,
        who,
        released,
        kept,
        transcript,
        accounts,
        study=study,
        study_hash=name_hash,
        run_id=run_id,
        seed=seed,
    )
    assessed = Assessment()
    if tested is not None:
        whole = [held for held in records.values() if isinstance(held, Records)]
        # Fits on all records need all of them at once.
        compared = whole if baselines and len(whole) == len(records) else None
        assessed = protocol.assess(outcome.presented, compared, tested)
        if local:
            noted = tuple(replace(one, note=_without_models(one)) for one in assessed.baselines)
            assessed = replace(assessed, baselines=noted)
        if repeats:
            measured = repeated(
                protocol,
                who,
                tested,
                count=repeats,
                secret=_secret_of(seed),
                blocks=lambda most: stacks(list(records.values()), most),
                local=local,
                whole=len(whole) == len(records),
                with_hosts=lambda fresh: _with_hosts(
                    protocol,
                    who,
                    records,
                    {},
                    {party: granted(None, delta, declaration, who, party) for party in who.parties},
                    fresh,
                    None,
                    new_run_id(),
                    name_hash,
                    study,
                    None,
                    local,
                    results=False,
                )[0],
            )
            assessed = replace(assessed, repeats=measured, sections=(*assessed.sections, measured.section()))
    return replace(
        outcome,
        assessment=assessed,
        received=received,
        presented_to={party: presented_to(protocol, found, who) for party, found in received.items()},
        kept={party: protocol.present_own(found.own, who) for party, found in received.items()},
        seconds=time.perf_counter() - started,
        masks=not stacked,
        settings=dict(settings or {}),
        findings=sentences(odd),
    )


def _without_models(baseline: Baseline) -> str:
    """What is compared with is trained by the protocol, which does not see local models; the constant has none."""
    return baseline.note if baseline.name == "constant" else f"{baseline.note}; built-in classifier".lstrip("; ")


def _with_hosts(
    protocol: Protocol,
    who: Consortium,
    records: Mapping[str, Held],
    ledgers: Mapping[str, Ledger],
    grants: Mapping[str, Granted],
    seed: int | None,
    journal: Path | None,
    run_id: str,
    study: str,
    title: str,
    progress: Progress | None,
    local: Mapping[str, LocalModel],
    *,
    results: bool,
) -> tuple[dict[str, Any], dict[str, Any], tuple[Account, ...], Transcript, dict[str, Received]]:
    # Keys of simulated parties come from the study's hash, so that a resumed run meets the same parties.
    names = (COORDINATOR, *who.parties)
    keys = {name: Identity(derive(study.encode(), "simulated identity", name)) for name in names}
    who = replace(who, roster={name: identity.public for name, identity in keys.items()})
    agreed = Agreed(study, protocol, who, title)
    hosts = {}
    for party in who.parties:
        ledger = ledgers.get(party) or Ledger.in_memory(
            dataset=party, unit=who.unit, neighbours=who.neighbours, **grants[party]
        )
        hosts[party] = Host(
            agreed,
            party,
            records=records[party],
            keys=keys[party],
            store=Store(ledger, unit=who.unit, neighbours=who.neighbours),
            noise=noise_source(seed, party),
            policy=SIMULATION,
            local=local.get(party),
            chance=fresh_seed if seed is None else partial(derive, _secret_of(seed), "set aside", party),
        )
    channel = LocalChannel(hosts)
    coordinator = Parties(
        agreed,
        run=run_id,
        channel=channel,
        journal=Journal(journal),
        keys=keys[COORDINATOR],
        noise=noise_source(seed, "coordinator"),
        progress=progress,
    )
    try:
        released, kept = whole_run(coordinator)
    except (Refused, Stopped) as error:
        if error.party in channel.refusals:
            raise channel.refusals[error.party] from error
        raise
    accounts = tuple(account(party, hosts[party].store.ledger, delta_of(who.loss)) for party in who.parties)
    received = {party: host.received(run_id) for party, host in hosts.items()} if results else {}
    return released, kept, accounts, coordinator.transcript, received


def outcome_of(
    protocol: Protocol,
    who: Consortium,
    released: Mapping[str, Any],
    kept: Mapping[str, Any],
    transcript: Transcript,
    accounts: tuple[Account, ...],
    *,
    study: str,
    study_hash: str,
    run_id: str,
    seed: int | None,
    partly: bool = False,
) -> Outcome:
    """What a run gives back, wherever it ran, from what its coordinator has at its end; or, `partly`, from what a party
    has, which may not have been released what the rest takes."""

    def made(make: Callable[[], Any]) -> Any:
        try:
            return make()
        except KeyError:
            if partly:
                return None
            raise

    declaration = protocol.accepted(who)
    spent = largest(declaration, who)
    delta = delta_of(who.loss)
    shown = plan(study, protocol, who)
    return Outcome(
        study=study,
        study_hash=study_hash,
        run=run_id,
        protocol=protocol.name,
        presented=made(lambda: protocol.present(released, who)),
        beside=made(lambda: protocol.beside(released, who, study=study_hash, run=run_id)) or {},
        released={**kept, **released},
        guarantee=Guarantee(
            loss=describe(spent, delta),
            epsilon=float(spent.epsilon_at(delta)),
            delta=float(delta),
            unit=shown.unit,
            neighbours=shown.neighbours,
            adversary=declaration.adversary,
            claim=declaration.claim,
            seeded=seed is not None,
            payers=paid_by(declaration, who),
        ),
        plan=shown,
        declaration=declaration,
        consortium=who,
        transcript=transcript,
        accounts=accounts,
        parties=who.size,
        seed=seed,
        evaluation=None if who.evaluation is None else made(lambda: protocol.measured(who).figures(released, who)),
    )


def encoded(protocol: Protocol, data: pd.DataFrame, where: str, party: str | None = None) -> Records:
    """Records as the protocol wants them; a frame is encoded by the protocol's own encoding, or, where parties hold
    different columns, by that of the party."""
    return encoding_of(protocol, where, party).encode(data, where=where).records


def noise_source(seed: int | None, owner: str) -> NoiseSource:
    if seed is None:
        return ReleasedNoise()
    return SeededDraws(derive(_secret_of(seed), "noise", owner))


def _secret_of(seed: int | None) -> bytes:
    return fresh_seed() if seed is None else seed.to_bytes(16, "big", signed=True)


def delta_of(loss: Loss) -> Decimal:
    return loss.delta if isinstance(loss, Approx) else Decimal(0)


class Granted(TypedDict):
    """What a simulated owner grants, and what it is counted in."""

    grant: Pure | Approx | None
    currency: Currency | None


def granted(
    grant: float | Mapping[str, float | Approx] | None,
    delta: float,
    declaration: Declaration,
    who: Consortium,
    party: str,
) -> Granted:
    """A grant in the currency that this party's losses enter: pure where all of them are, whatever δ is agreed on."""
    if grant is None:
        return Granted(grant=None, currency=None)
    own = grant[party] if isinstance(grant, Mapping) else grant
    losses = [release.loss for release in declaration.paid_by(party, who) if release.loss is not None]
    whole = own if isinstance(own, Approx) else Approx(own, delta) if delta else Pure(own)
    currency = currency_for(losses, whole)
    return Granted(grant=Pure(whole.epsilon) if currency is Currency.PURE else whole, currency=currency)


def account(party: str, ledger: Ledger, delta: Decimal) -> Account:
    only = ledger.summary()[0]
    unlimited = "no limit"
    return Account(
        party,
        granted=unlimited if only.granted is None else str(only.granted),
        spent=describe(only.spent, delta),
        left=unlimited if only.left is None else f"eps {figure(only.left, ROUND_FLOOR)}",
    )


def stacks(records: Sequence[Held], most: int) -> Iterator[Block]:
    """Blocks of at most so many parties."""
    for start in range(0, len(records), most):
        yield padded(records[start : start + most])


def new_run_id(clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> str:
    return f"{clock():%Y-%m-%d}-{fresh_seed()[:4].hex()}"
