"""The guarantee of a fitted estimator: that of its run, widened to everything that its records are known to have paid.

Claim    "private" is said of an unseeded fit that was charged to a ledger file, where nothing that this process saw
         speaks against it. Everything else is "simulation only", with the reasons.
Figures  with a ledger, all that it had debited when the fit was charged, in its unit and at the delta it grants;
         without one, the sum over all fits of this process that share records with this one, as of now.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from math import inf

from comity.estimators.fits import Tally
from comity.federation.declare.payers import describe
from comity.privacy.ledger import Account
from comity.privacy.loss import Approx, float_above
from comity.privacy.unit import Neighbours, Unit
from comity.study.results.outcome import Guarantee


@dataclass(frozen=True)
class Charge:
    """What a fit was charged to: the ledger's name, whether it outlives the process, and its account afterwards."""

    ledger: str
    durable: bool
    account: Account


def stated(made: Guarantee, *, charge: Charge | None, around: tuple[str, ...], tally: Tally) -> Guarantee:
    reasons = [*_unpaid(charge, tally), *around, *_chosen(tally)]
    claim = made.claim
    if reasons:
        said = "simulation only: " + "; ".join(reasons)
        claim = said if made.claim == "private" else f"{made.claim}; {said}"
    widened = _of_process(made, tally) if charge is None else _of_ledger(made, charge.account)
    return replace(widened, claim=claim)


def _unpaid(charge: Charge | None, tally: Tally) -> Iterator[str]:
    if charge is None:
        yield "no ledger counts what these records pay elsewhere"
        return
    if not charge.durable:
        yield "its ledger is in memory and counts nothing of other processes"
    others = tally.fits - tally.charged.get(charge.ledger, 0)
    if others:
        fits = "1 other fit" if others == 1 else f"{others} other fits"
        verb = "was" if others == 1 else "were"
        yield f"{fits} of these records in this process {verb} not charged to its ledger"


def _chosen(tally: Tally) -> Iterator[str]:
    """Answers about the records can choose among several models; a single one stays what it is."""
    if tally.fits < 2:
        return
    if tally.asked:
        yield (
            f"one of {tally.fits} fits may have been chosen by scores: models answered about these records, and nobody "
            "was charged for what the answers tell"
        )
    elif tally.unsure:
        yield (
            f"one of {tally.fits} fits may have been chosen by scores: models answered about more rows than are "
            "remembered"
        )


def _of_process(made: Guarantee, tally: Tally) -> Guarantee:
    if tally.fits == 1:
        return made
    if tally.spent is None:
        return replace(made, loss=f"more than can be added up over {tally.fits} fits of this process", epsilon=inf)
    return replace(
        made,
        loss=f"{describe(tally.spent, tally.delta)} over {tally.fits} fits of this process",
        epsilon=float_above(tally.spent.epsilon_at(tally.delta)),
        delta=float(tally.delta),
    )


def _of_ledger(made: Guarantee, account: Account) -> Guarantee:
    delta = Decimal(repr(made.delta))
    if account.granted is not None:
        delta = account.granted.delta if isinstance(account.granted, Approx) else Decimal(0)
    return replace(
        made,
        loss=f"{describe(account.spent, delta)} in all on its ledger",
        epsilon=float_above(account.spent.epsilon_at(delta)),
        delta=float(delta),
        unit="a whole party" if account.unit is Unit.PARTY else f"a {account.unit}",
        neighbours="replaced" if account.neighbours is Neighbours.REPLACE else "added or removed",
    )
