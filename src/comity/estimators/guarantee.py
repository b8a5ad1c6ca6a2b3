"""What a fit pays, and what a fitted estimator may claim.

Charge   A fit on a ledger debits its whole run in one transaction, before any noise is drawn, or is refused.
Claim    An unseeded fit that was charged to a ledger file is "private", unless this process saw a reason against it.
         Every other fit is "simulation only", with the reasons.
Figures  With a ledger: all that it had debited when the fit was charged, in its unit and at the delta it grants.
         Without one: the sum over all fits of this process that share records with this one, as of now.
Reasons  What a step or a search learned from the same records reaches the model beside the noise. scikit-learn tells
         an estimator nothing about the pipeline or the search that calls it, so the calling frames are read, by their
         module and their `self` alone. This can withdraw a claim and never gives one: finding nothing promises nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from math import inf
from os import PathLike
from types import FrameType
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from comity.entropy import fresh_seed
from comity.estimators.fits import Tally
from comity.estimators.table import Floats
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.payers import format_spent
from comity.federation.protocol import Protocol
from comity.privacy.ledger import Account, Draw, Ledger
from comity.privacy.loss import Approx, float_above
from comity.privacy.unit import Neighbours, Unit
from comity.study.results.result import Guarantee

# These parts of scikit-learn hand rows on as they are, and each fit that they make is charged.
_NEUTRAL = {"base", "utils", "pipeline", "multiclass", "multioutput"}


@dataclass(frozen=True)
class Charge:
    """What a fit was charged to: the ledger's name, whether it outlives the process, and its account afterwards."""

    ledger: str
    durable: bool
    account: Account


def list_draws(protocol: Protocol, consortium: Consortium) -> list[Draw]:
    """Everything that the table pays in a run.

    Its records are split over simulated parties, and a unit lies in one of them only: the table pays what one party
    pays.
    """
    return protocol.declare(consortium).draws(next(iter(consortium.parties)), consortium)


def charge_fit(
    ledger: Ledger | str | PathLike[str], protocol: Protocol, consortium: Consortium, draws: list[Draw]
) -> Charge:
    """Reserve and draw everything in one durable transaction.

    Raises `BudgetExceeded`, and debits nothing, where the budget does not suffice. Every call is charged as a separate
    run, whichever copy of an estimator makes it: the budget is in the file.
    """
    ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    run = f"fit-{fresh_seed()[:12].hex()}"
    with ledger.transaction() as transaction:
        transaction.reserve(
            study=f"{protocol.name} estimator",
            run=run,
            draws=draws,
            unit=consortium.unit,
            neighbours=consortium.neighbours,
        )
        for draw in draws:
            transaction.draw(run=run, release=draw.release, index=draw.index, step="fit")
        transaction.close(run)
    # One name for one ledger, whether it was given as an object or as a path.
    name = f"in memory {ledger.owner}" if ledger.path is None else str(ledger.path.resolve())
    return Charge(name, ledger.path is not None, ledger.summary()[0])


def find_enclosing_search(X: Floats) -> tuple[str, ...]:
    """Reasons for which the fit that is under way can't claim to be private: what calls it, and how the rows look."""
    reasons = dict.fromkeys(_find_learning_callers(inspect.currentframe()))
    if _is_standardised(X):
        reasons["the rows have mean 0 and variance 1: they were scaled by figures of these very records"] = None
    return tuple(reasons)


def _find_learning_callers(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        package, _, rest = str(frame.f_globals.get("__name__")).partition(".")
        caller = frame.f_locals.get("self")
        if isinstance(caller, Pipeline):
            for _, step in caller.steps[:-1]:
                if _learns(step):
                    yield f"{type(step).__name__} before it was fitted on records that nobody was charged for"
        elif package == "sklearn" and (part := rest.partition(".")[0]) not in _NEUTRAL:
            yield f"fitted inside sklearn.{part}, whose choices and scores on these records nobody was charged for"
        frame = frame.f_back


def _learns(step: Any) -> bool:
    """Whether fitting a pipeline fits this step. A frozen step was fitted elsewhere."""
    if step is None or step == "passthrough" or isinstance(step, FrozenEstimator):
        return False
    return bool(get_tags(step).requires_fit)


def _is_standardised(X: Floats) -> bool:
    """Whether every column that varies has mean 0 and variance 1 to the last digits, which only its own figures do."""
    with np.errstate(over="ignore", invalid="ignore"):
        spread, mean = X.std(axis=0), X.mean(axis=0)
    varies = spread > 0
    return bool(varies.any() and (abs(spread[varies] - 1) < 1e-9).all() and (abs(mean[varies]) < 1e-9).all())


def widen_guarantee(of_run: Guarantee, *, charge: Charge | None, search: tuple[str, ...], tally: Tally) -> Guarantee:
    """The guarantee of the run, widened to everything that its records are known to have paid."""
    reasons = [*_find_unpaid(charge, tally), *search, *_find_choices(tally)]
    claim = of_run.claim
    if reasons:
        simulation_only = "simulation only: " + "; ".join(reasons)
        claim = simulation_only if of_run.claim == "private" else f"{of_run.claim}; {simulation_only}"
    widened = _widen_to_process(of_run, tally) if charge is None else _widen_to_ledger(of_run, charge.account)
    return replace(widened, claim=claim)


def _find_unpaid(charge: Charge | None, tally: Tally) -> Iterator[str]:
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


def _find_choices(tally: Tally) -> Iterator[str]:
    """Answers about the records can choose among several models; a single model stays what it is."""
    if tally.fits < 2:
        return
    if tally.queried:
        yield (
            f"one of {tally.fits} fits may have been chosen by scores: models answered about these records, and nobody "
            "was charged for what the answers tell"
        )
    elif tally.incomplete:
        yield (
            f"one of {tally.fits} fits may have been chosen by scores: models answered about more rows than are "
            "remembered"
        )


def _widen_to_process(of_run: Guarantee, tally: Tally) -> Guarantee:
    if tally.fits == 1:
        return of_run
    if tally.spent is None:
        return replace(of_run, loss=f"more than can be added up over {tally.fits} fits of this process", epsilon=inf)
    return replace(
        of_run,
        loss=f"{format_spent(tally.spent, tally.delta)} over {tally.fits} fits of this process",
        epsilon=float_above(tally.spent.epsilon_at(tally.delta)),
        delta=float(tally.delta),
    )


def _widen_to_ledger(of_run: Guarantee, account: Account) -> Guarantee:
    delta = Decimal(repr(of_run.delta))
    if account.granted is not None:
        delta = account.granted.delta if isinstance(account.granted, Approx) else Decimal(0)
    return replace(
        of_run,
        loss=f"{format_spent(account.spent, delta)} in all on its ledger",
        epsilon=float_above(account.spent.epsilon_at(delta)),
        delta=float(delta),
        unit="a whole party" if account.unit is Unit.PARTY else f"a {account.unit}",
        neighbours="replaced" if account.neighbours is Neighbours.REPLACE else "added or removed",
    )
