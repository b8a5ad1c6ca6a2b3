"""Charging a whole simulated run to one ledger, before it happens."""

from __future__ import annotations

from collections import Counter
from os import PathLike

from comity.entropy import fresh_seed
from comity.federation.declare.consortium import Consortium
from comity.federation.protocol import Protocol
from comity.privacy.ledger import Account, Draw, Ledger
from comity.privacy.loss import Loss


def draws_of(protocol: Protocol, consortium: Consortium) -> list[Draw]:
    """Everything that one party pays in a run.

    The records of a table are dealt to simulated parties, and a unit lies in one of them only, so that what one party
    pays is what the table pays.
    """
    return protocol.declare(consortium).draws(next(iter(consortium.parties)), consortium)


def losses_of(draws: list[Draw]) -> Counter[Loss]:
    return Counter(draw.loss for draw in draws)


def opened(ledger: Ledger | str | PathLike[str]) -> Ledger:
    return ledger if isinstance(ledger, Ledger) else Ledger(ledger)


def name_of(ledger: Ledger) -> str:
    """One name for one ledger, however it was given."""
    return f"in memory {ledger.owner}" if ledger.path is None else str(ledger.path.resolve())


def debit(ledger: Ledger, protocol: Protocol, consortium: Consortium, draws: list[Draw]) -> Account:
    """Reserve and draw it all in one durable transaction; returns the account of the table after it.

    Refuses, and debits nothing, when the budget is gone. Each call is a run of its own, whichever copy of an estimator
    makes it: the budget is in the file.
    """
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
    return ledger.summary()[0]
