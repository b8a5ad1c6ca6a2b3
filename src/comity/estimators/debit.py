"""Charging a whole simulated run to one ledger, before it happens."""

from __future__ import annotations

from os import PathLike

from comity.entropy import fresh_seed
from comity.federation.consortium import Consortium
from comity.federation.protocol import Protocol
from comity.privacy.ledger import Draw, Ledger


def debit(ledger: Ledger | str | PathLike[str], protocol: Protocol, who: Consortium) -> str:
    """Reserve and draw everything that one party pays in a run, in one durable transaction; returns the run's id.

    The ledger is that of the whole table. Its records are dealt to simulated parties, and a unit lies in one of them
    only, so that what one party pays is what the table pays. Refuses, and debits nothing, when the budget is gone. Each
    call is a run of its own, whichever copy of an estimator makes it: the budget is in the file.
    """
    opened = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    run = f"fit-{fresh_seed()[:12].hex()}"
    declaration = protocol.declare(who)
    draws = [
        Draw(release.name, index, release.loss, type(release.noise).__name__, release.sensitivity)
        for release in declaration.paid_by(next(iter(who.parties)), who)
        if release.loss is not None
        for index in range(release.times)
    ]
    with opened.transaction() as transaction:
        transaction.reserve(
            study=f"{protocol.name} estimator", run=run, draws=draws, unit=who.unit, neighbours=who.neighbours
        )
        for draw in draws:
            transaction.draw(run=run, release=draw.release, index=draw.index, step="fit")
        transaction.close(run)
    return run
