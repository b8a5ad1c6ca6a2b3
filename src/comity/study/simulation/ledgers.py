"""Ledgers of simulated parties and what their owners grant: in memory, or in the folder of a run, where they outlive
the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from comity.errors import StudyError
from comity.federation.agreement import Agreement
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Declaration
from comity.federation.declare.payers import delta_of, payer_groups, payers
from comity.files import make_folder
from comity.privacy.currency import Currency
from comity.privacy.ledger.balance import Balance, currency_for
from comity.privacy.loss import LOSSES, Approx, Pure, float_above, format_up, loss_of
from comity.privacy.parallel import Parts
from comity.study.results.released import safe_name
from comity.study.results.result import Account
from comity.study.study import Study

if TYPE_CHECKING:
    from comity.privacy.ledger import Ledger
    from comity.study.local.consortium import OpenLedger


def usual_grant(study: Study) -> Pure | Approx:
    """What each owner grants: `simulation.grant`, or what the study asks."""
    return loss_of(study.simulation.grant or study.privacy.epsilon, study.privacy.delta)


def require_grant(study: Study) -> None:
    """Refuse a `simulation.grant` that no epsilon could make large enough: a published method may lose what the study's
    delta does not cover."""
    if study.simulation.grant is None:
        return
    consortium = study.consortium
    for group in payer_groups(study.agreement.accepted, consortium):
        if isinf(float(group.spent.epsilon_at(delta_of(consortium)))):
            raise StudyError(
                f"{study.where}: simulation.grant = {study.simulation.grant:g} is an epsilon at delta "
                f"{study.privacy.delta:g}, and at that delta no epsilon covers what "
                f"{study.protocol.title_in(consortium)} loses; remove simulation.grant, and each "
                "simulated ledger is granted what the study asks",
                key="simulation.grant",
            )


def grants_by_party(study: Study, agreement: Agreement) -> float | dict[str, float | Approx]:
    """`usual_grant`, for every party. Where the file sets no grant, a role that pays more than the study's epsilon is
    granted what it pays, and so is each party of a published method that does not keep its claim: its epsilon is the
    claimed one. Such a method may lose what no epsilon covers at the study's delta: that is granted with the delta that
    covers it."""
    usual, consortium = float(usual_grant(study).epsilon), agreement.consortium
    if study.simulation.grant is not None or not (consortium.roles or agreement.accepted.unproven):
        return usual
    grants: dict[str, float | Approx] = {}
    for group in payer_groups(agreement.accepted, consortium):
        asked = float_above(group.spent.epsilon_at(delta_of(consortium)))
        if isinf(asked):
            whole = LOSSES.add(group.spent.approx_epsilon, group.spent.pure)
            grants.update(dict.fromkeys(group.parties, Approx(whole, group.spent.delta)))
            continue
        # A little up: what a loss converts to and back again is rounded both ways.
        own = usual if asked <= usual else float(format_up(Decimal(repr(asked * (1 + 1e-6))), decimals=2))
        grants.update(dict.fromkeys(group.parties, own))
    return grants


@dataclass(frozen=True)
class BudgetForecast:
    """What a run would cost each of these owners, as epsilon at the study's delta: granted and left are rounded down,
    spent is rounded up. `left` is None where the grant does not suffice; `squares` says that losses add as squares."""

    owners: str
    granted: Decimal
    spent: Decimal
    left: Decimal | None
    squares: bool


def forecast_budgets(study: Study) -> tuple[BudgetForecast, ...]:
    """What would be left of `simulation.grant` at each kind of owner; empty where the study names no grant. It opens no
    ledger."""
    grant = study.simulation.grant
    if grant is None:
        return ()
    consortium, declaration = study.consortium, study.agreement.accepted
    named = payers(declaration, consortium)
    forecasts = []
    for group, payer in zip(payer_groups(declaration, consortium), named, strict=True):
        terms = grant_in_currency(grant, study.privacy.delta, declaration, consortium, group.parties[0])
        balance = Balance.open(terms["grant"], terms["currency"])
        cost = Parts()
        for release in group.releases:
            assert release.loss is not None
            cost.add(group.parts[release.name], balance.in_currency(release.loss), release.debits)
        assert balance.granted is not None and balance.currency is not None
        spent = balance.epsilon_of(cost.cost)
        left = balance.reserve(cost.cost).left if balance.covers(cost.cost) else None
        squares = balance.currency.adds_squares
        forecasts.append(BudgetForecast(payer.name, balance.granted.epsilon, spent, left, squares))
    return tuple(forecasts)


# Up to so many parties have a file each, which costs several durable writes. More, up to REAL_HOSTS, share one.
FILE_EACH = 64

Grant = float | Mapping[str, float | Approx] | None
"""What owners grant: one epsilon for all or one by party, at the study's delta or with its delta; None is no limit."""


class Granted(TypedDict):
    """What a simulated owner grants, and what it is counted in."""

    grant: Pure | Approx | None
    currency: Currency | None


def grant_in_currency(
    grant: Grant, delta: float, declaration: Declaration, consortium: Consortium, party: str
) -> Granted:
    """The grant in the currency of this party's losses: pure where all of them are, even if the study has a delta."""
    if grant is None:
        return Granted(grant=None, currency=None)
    own = grant[party] if isinstance(grant, Mapping) else grant
    losses = [release.loss for release in declaration.paid_by(party, consortium) if release.loss is not None]
    whole = own if isinstance(own, Approx) else loss_of(own, delta)
    currency = currency_for(losses, whole)
    return Granted(grant=Pure(whole.epsilon) if currency is Currency.PURE else whole, currency=currency)


def ledgers_in_memory(agreement: Agreement, grant: Grant = None, delta: float = 0.0) -> OpenLedger:
    """Ledgers that end with the process."""
    consortium = agreement.consortium

    from comity.privacy.ledger import Ledger

    def open_ledger(party: str) -> Ledger:
        terms = grant_in_currency(grant, delta, agreement.declaration, consortium, party)
        return Ledger.in_memory(dataset=party, unit=consortium.unit, neighbours=consortium.neighbours, **terms)

    return open_ledger


def ledgers_in_folder(agreement: Agreement, grant: Grant, delta: float, folder: Path) -> OpenLedger:
    """Ledgers in files, each with its limit; those of a run that is resumed are there already."""
    from comity.privacy.ledger import Ledger, SharedFile

    consortium = agreement.consortium
    shared = SharedFile(folder / "sites.sqlite") if consortium.size > FILE_EACH else None
    places = {party: place for place, party in enumerate(consortium.parties, start=1)}

    def open_ledger(party: str) -> Ledger:
        terms = grant_in_currency(grant, delta, agreement.declaration, consortium, party)
        if shared is None:
            return _open_file(folder / "ledgers" / file_name(party), party, consortium, terms)
        place = places[party]
        return Ledger.in_shared_file(
            shared, place, dataset=party, unit=consortium.unit, neighbours=consortium.neighbours, **terms
        )

    return open_ledger


def _open_file(path: Path, party: str, consortium: Consortium, terms: Granted) -> Ledger:
    """Open the party's ledger, or create it under another name first: a killed run leaves no incomplete one."""
    from comity.privacy.ledger import Ledger

    if not path.exists():
        make_folder(path.parent)
        draft = path.with_suffix(".new")
        for suffix in ("", "-wal", "-shm"):
            Path(f"{draft}{suffix}").unlink(missing_ok=True)
        assert terms["grant"] is not None
        draft_ledger = Ledger.create(
            draft,
            dataset=party,
            grant=terms["grant"],
            currency=terms["currency"],
            unit=consortium.unit,
            neighbours=consortium.neighbours,
            simulated=True,
        )
        # The last connection must be closed before the file moves, or its write-ahead log would stay behind.
        del draft_ledger
        draft.rename(path)
    return Ledger(path)


def file_name(party: str) -> str:
    return f"{safe_name(party)}.ledger"


def read_account(party: str, ledger: Ledger, consortium: Consortium) -> Account:
    """A ledger after the run, as its owner reads it."""
    return Account.of(party, ledger.summary()[0], consortium)
