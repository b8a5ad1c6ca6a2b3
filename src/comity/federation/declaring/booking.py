"""What a run reserves at one owner, and within what terms: one value for looking ahead and for beginning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from comity.errors import Refused
from comity.privacy.ledger import Draw, Transaction
from comity.privacy.loss import shown


@dataclass(frozen=True, kw_only=True)
class Period:
    """A ceiling on what all studies together spend of one dataset within so many days, by the owner's own clock.

    The grant of the ledger is what its owner promises for ever; this is how fast it may go. Where the clock was behind
    when a run was paid for, the run still counts; where it is ahead, the ceiling forgets early.
    """

    epsilon: Decimal
    delta: Decimal
    days: int
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def check(self, transaction: Transaction, dataset: str | None, title: str) -> None:
        """Refuse a run whose reservation, which this transaction holds already, goes beyond the ceiling."""
        now = self.clock().astimezone(UTC)
        since = now - timedelta(days=self.days)
        asked = transaction.spent_since(_text(since), now=_text(now), dataset=dataset).epsilon_at(self.delta)
        if asked > self.epsilon:
            raise Refused(
                f"refused: with {title} the studies of {self.days} days cost {dataset or 'the dataset'} eps "
                f"{shown(asked, decimals=2)} at delta {self.delta}, policy.epsilon_per_period is {self.epsilon}; wait, "
                "or raise it in the site file",
                code="policy",
                key="epsilon_per_period",
            )


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")


@dataclass(frozen=True, kw_only=True)
class Booking:
    """`most` is for how many runs the study is approved, None without a limit. It and the `period` are compared in the
    transaction that reserves, or runs that begin at the same moment would all be the first."""

    study: str
    title: str
    draws: tuple[Draw, ...]
    most: int | None = None
    period: Period | None = None
