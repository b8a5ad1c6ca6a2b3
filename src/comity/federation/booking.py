"""What a run reserves at one owner, and within what terms: one value for looking ahead and for beginning."""

from __future__ import annotations

from dataclasses import dataclass

from comity.privacy.ledger import Draw


@dataclass(frozen=True, kw_only=True)
class Booking:
    """`most` is for how many runs the study is approved, None without a limit; it is compared in the transaction that
    reserves, or runs that begin at the same moment would all be the first."""

    study: str
    title: str
    draws: tuple[Draw, ...]
    most: int | None = None
