"""One owner's privacy budget, durable: what was granted, reserved and drawn, in an append-only chain.

Import everything from here; a name is imported when it is first used, because most commands need few of them. Inside,
`ledger.py` is the public object and `transaction.py` what it can write; `balance.py` holds the sums, `chain.py` the
hash chains, `tables.py` the SQL, `verification.py` the rules that a ledger must follow, `storage.py` files and memory,
and `witness.py` the defence against restored backups.
"""

from typing import TYPE_CHECKING

from comity.lazy_exports import export_lazily

if TYPE_CHECKING:
    from comity.privacy.currency import Currency as Currency
    from comity.privacy.ledger.balance import Account as Account
    from comity.privacy.ledger.balance import currency_for as currency_for
    from comity.privacy.ledger.balance import format_rounded as format_rounded
    from comity.privacy.ledger.chain import CommitHead as CommitHead
    from comity.privacy.ledger.chain import Entry as Entry
    from comity.privacy.ledger.draw import Draw as Draw
    from comity.privacy.ledger.follower import Followed as Followed
    from comity.privacy.ledger.follower import LedgerFollower as LedgerFollower
    from comity.privacy.ledger.history import Moment as Moment
    from comity.privacy.ledger.ledger import Ledger as Ledger
    from comity.privacy.ledger.ledger import Run as Run
    from comity.privacy.ledger.storage import SharedFile as SharedFile
    from comity.privacy.ledger.tables import numbered_parameters as numbered_parameters
    from comity.privacy.ledger.transaction import Transaction as Transaction
    from comity.privacy.ledger.verification import Check as Check
    from comity.privacy.ledger.verification import Sign as Sign
    from comity.privacy.ledger.verification import Verified as Verified
    from comity.privacy.ledger.verification import verify_export as verify_export
    from comity.privacy.ledger.witness import describe_freeze as describe_freeze
    from comity.privacy.ledger.witness import heads_folder as heads_folder

__all__ = [
    "Account",
    "Check",
    "CommitHead",
    "Currency",
    "Draw",
    "Entry",
    "Followed",
    "Ledger",
    "LedgerFollower",
    "Moment",
    "Run",
    "SharedFile",
    "Sign",
    "Transaction",
    "Verified",
    "currency_for",
    "describe_freeze",
    "format_rounded",
    "heads_folder",
    "numbered_parameters",
    "verify_export",
]

_HOMES = {
    "Account": "comity.privacy.ledger.balance",
    "Check": "comity.privacy.ledger.verification",
    "CommitHead": "comity.privacy.ledger.chain",
    "Currency": "comity.privacy.currency",
    "Draw": "comity.privacy.ledger.draw",
    "Entry": "comity.privacy.ledger.chain",
    "Followed": "comity.privacy.ledger.follower",
    "Ledger": "comity.privacy.ledger.ledger",
    "LedgerFollower": "comity.privacy.ledger.follower",
    "Moment": "comity.privacy.ledger.history",
    "Run": "comity.privacy.ledger.ledger",
    "SharedFile": "comity.privacy.ledger.storage",
    "Sign": "comity.privacy.ledger.verification",
    "Transaction": "comity.privacy.ledger.transaction",
    "Verified": "comity.privacy.ledger.verification",
    "currency_for": "comity.privacy.ledger.balance",
    "describe_freeze": "comity.privacy.ledger.witness",
    "format_rounded": "comity.privacy.ledger.balance",
    "heads_folder": "comity.privacy.ledger.witness",
    "numbered_parameters": "comity.privacy.ledger.tables",
    "verify_export": "comity.privacy.ledger.verification",
}

__getattr__, __dir__ = export_lazily(globals(), _HOMES)
