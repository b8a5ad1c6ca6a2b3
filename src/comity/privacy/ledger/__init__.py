"""One owner's privacy budget, durable: what was granted, reserved and drawn, in an append-only chain.

Import everything from here. Inside, `ledger.py` is the public object and `transaction.py` what it can write;
`balance.py` holds the sums, `chain.py` the hash chains, `tables.py` the SQL, `verification.py` the rules that a ledger
must follow, `storage.py` files and memory, and `witness.py` the defence against restored backups.
"""

from comity.privacy.currency import Currency
from comity.privacy.ledger.balance import Account, currency_for, format_rounded
from comity.privacy.ledger.chain import CommitHead, Entry
from comity.privacy.ledger.follower import Followed, LedgerFollower
from comity.privacy.ledger.history import Moment
from comity.privacy.ledger.ledger import Ledger, Run
from comity.privacy.ledger.storage import SharedFile
from comity.privacy.ledger.tables import numbered_parameters
from comity.privacy.ledger.transaction import Draw, Transaction
from comity.privacy.ledger.verification import Check, Sign, Verified, verify_export
from comity.privacy.ledger.witness import describe_freeze, heads_folder

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
