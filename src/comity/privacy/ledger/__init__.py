"""One owner's privacy budget, durable: what was granted, reserved and drawn, in an append-only chain."""

from comity.privacy.ledger.ledger import (
    Account,
    CommitHead,
    Currency,
    Draw,
    Entry,
    Ledger,
    Run,
    Transaction,
    Verified,
    verify_export,
)

__all__ = [
    "Account",
    "CommitHead",
    "Currency",
    "Draw",
    "Entry",
    "Ledger",
    "Run",
    "Transaction",
    "Verified",
    "verify_export",
]
