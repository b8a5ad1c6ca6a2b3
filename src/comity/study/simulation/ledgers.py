"""Ledgers of simulated parties: in memory, or in the folder of a run, where they outlive the process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from comity.federation.agreement import Agreement
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Declaration
from comity.files import make_folder
from comity.privacy.currency import Currency
from comity.privacy.ledger import Ledger, SharedFile, currency_for
from comity.privacy.loss import Approx, Pure, loss_of
from comity.study.local.consortium import OpenLedger
from comity.study.results.outcome import Account
from comity.study.results.received import safe_name

# Up to so many parties each has a ledger in a file of its own; each file costs several durable writes. Beyond, up to
# REAL_HOSTS, they share one.
FILE_EACH = 64

Grant = float | Mapping[str, float | Approx] | None
"""What owners grant: one epsilon for all or one by party, at the study's delta or with a delta of its own; None is no
limit."""


class Granted(TypedDict):
    """What a simulated owner grants, and what it is counted in."""

    grant: Pure | Approx | None
    currency: Currency | None


def granted(grant: Grant, delta: float, declaration: Declaration, consortium: Consortium, party: str) -> Granted:
    """A grant in the currency of this party's losses: pure where all of them are, even if the study has a δ."""
    if grant is None:
        return Granted(grant=None, currency=None)
    own = grant[party] if isinstance(grant, Mapping) else grant
    losses = [release.loss for release in declaration.paid_by(party, consortium) if release.loss is not None]
    whole = own if isinstance(own, Approx) else loss_of(own, delta)
    currency = currency_for(losses, whole)
    return Granted(grant=Pure(whole.epsilon) if currency is Currency.PURE else whole, currency=currency)


def in_memory(agreed: Agreement, grant: Grant = None, delta: float = 0.0) -> OpenLedger:
    """Ledgers that end with the process."""
    consortium = agreed.consortium

    def opened(party: str) -> Ledger:
        terms = granted(grant, delta, agreed.declaration, consortium, party)
        return Ledger.in_memory(dataset=party, unit=consortium.unit, neighbours=consortium.neighbours, **terms)

    return opened


def in_folder(agreed: Agreement, grant: Grant, delta: float, folder: Path) -> OpenLedger:
    """Ledgers in files, each with its limit; those of a run that is resumed are there already."""
    consortium = agreed.consortium
    shared = SharedFile(folder / "sites.sqlite") if consortium.size > FILE_EACH else None
    places = {party: place for place, party in enumerate(consortium.parties, start=1)}

    def opened(party: str) -> Ledger:
        terms = granted(grant, delta, agreed.declaration, consortium, party)
        if shared is None:
            return _in_file(folder / "ledgers" / file_name(party), party, consortium, terms)
        place = places[party]
        return Ledger.in_shared_file(
            shared, place, dataset=party, unit=consortium.unit, neighbours=consortium.neighbours, **terms
        )

    return opened


def _in_file(path: Path, party: str, consortium: Consortium, terms: Granted) -> Ledger:
    """The party's ledger, made under another name first: a run that was killed meanwhile leaves no half-made one."""
    if not path.exists():
        make_folder(path.parent)
        draft = path.with_suffix(".new")
        for suffix in ("", "-wal", "-shm"):
            Path(f"{draft}{suffix}").unlink(missing_ok=True)
        assert terms["grant"] is not None
        made = Ledger.create(
            draft,
            dataset=party,
            grant=terms["grant"],
            currency=terms["currency"],
            unit=consortium.unit,
            neighbours=consortium.neighbours,
            simulated=True,
        )
        # The last connection must be closed before the file moves, or its write-ahead log would stay behind.
        del made
        draft.rename(path)
    return Ledger(path)


def file_name(party: str) -> str:
    """The file of a party's ledger."""
    return f"{safe_name(party)}.ledger"


def account(party: str, ledger: Ledger, consortium: Consortium) -> Account:
    """A ledger after the run, as its owner reads it."""
    return Account.of(party, ledger.summary()[0], consortium)
