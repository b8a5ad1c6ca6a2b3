"""What was bought from whom: quotas, shares of the value and payouts.

In one shot they follow from noisy releases alone. In an auction they are shares of winning bids, which curator and
consumer know.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self, get_args

from comity.artefacts.section import Grid
from comity.errors import DataError

_FORMAT: Final = "comity-bought-1"
PAGE: Final = "bought.json"


Basis = Literal["masses", "bids"]


@dataclass(frozen=True)
class Bought:
    """For each owner how many records it was asked for and its share of the value, by noisy masses or winning bids;
    MMD² between owners and consumer before and after, as the releases tell it (in an auction, between nothing or the
    summary and the consumer); what is paid in all. `seen` is how many records, or hashes, the curator touched, `asked`
    how many the summary was to have."""

    owners: tuple[str, ...]
    quotas: tuple[int, ...]
    shares: tuple[float, ...]
    before: float
    after: float
    payment: float
    asked: int
    seen: int
    basis: Basis = "masses"

    @classmethod
    def of(
        cls,
        owners: tuple[str, ...],
        released: Mapping[str, Any],
        *,
        payment: float,
        asked: int,
        seen: int,
        basis: Basis = "masses",
    ) -> Self:
        """`released` is the attribution."""
        before, after = map(float, released["discrepancy"])
        return cls(
            owners,
            tuple(int(quota) for quota in released["quotas"]),
            tuple(float(share) for share in released["shares"]),
            before,
            after,
            payment,
            asked,
            seen,
            basis,
        )

    @property
    def value(self) -> float:
        """By how much the objective falls, as the releases tell it."""
        return self.before - self.after

    @property
    def parsimony(self) -> float:
        """Records that the curator touched for each that was asked for."""
        return self.seen / self.asked

    def payouts(self) -> tuple[float, ...]:
        """The payment divided by shares of the value, to the hundredth, and whole in all."""
        cents = [math.floor(share * self.payment * 100) for share in self.shares]
        rest = [share * self.payment * 100 - whole for share, whole in zip(self.shares, cents)]
        left = round(self.payment * 100) - sum(cents)
        for place in sorted(range(len(cents)), key=lambda at: -rest[at])[: max(0, left)]:
            cents[place] += 1
        return tuple(cent / 100 for cent in cents)

    def grid(self) -> Grid:
        rows = tuple(
            (owner, quota, share, share * self.value, payout)
            for owner, quota, share, payout in zip(self.owners, self.quotas, self.shares, self.payouts())
        )
        return Grid(
            ("owner", "records", "share of the value", "MMD² that it takes away", "payout"),
            rows,
            f"Of {self.payment:g} paid. Shares are those of {_BASES[self.basis]}",
        )

    def sentences(self) -> tuple[str, ...]:
        if self.basis == "bids":
            found = (
                f"Beside the consumer's noisy mean the objective falls from {self.before:.4f} without a record to "
                f"{self.after:.4f}."
            )
            return (found, self._touched)
        return (
            f"By the noisy releases alone MMD² between owners and consumer falls from {self.before:.4f} to "
            f"{self.after:.4f} along the directions that noise leaves.",
            self._touched,
        )

    @property
    def _touched(self) -> str:
        return (
            f"The curator touched {self.seen} records for {self.asked} that were asked for (parsimony "
            f"{self.parsimony:.2f})."
        )

    def save(self, folder: Path) -> None:
        text = json.dumps({"format": _FORMAT, **asdict(self)}, indent=1, ensure_ascii=False, allow_nan=False)
        (folder / PAGE).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        path = folder / PAGE
        try:
            page = json.loads(path.read_text(encoding="utf-8"))
            if page.pop("format") != _FORMAT:
                raise ValueError("another format")
            owners, quotas, shares = page.pop("owners"), page.pop("quotas"), page.pop("shares")
            if not len(owners) == len(quotas) == len(shares) or not all(isinstance(name, str) for name in owners):
                raise ValueError("a quota and a share for each owner were expected")
            before, after, payment = (float(page.pop(key)) for key in ("before", "after", "payment"))
            asked, seen = (int(page.pop(key)) for key in ("asked", "seen"))
            basis = page.pop("basis", "masses")
            if basis not in get_args(Basis):
                raise ValueError("shares are of masses or of bids")
            shares = tuple(map(float, shares))
            if page or not all(map(math.isfinite, (before, after, payment, *shares))) or asked < 1:
                raise ValueError("finite figures and no others were expected")
            return cls(tuple(owners), tuple(map(int, quotas)), shares, before, after, payment, asked, seen, basis)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(f"{path}: can't be read ({error!r}); fetch the folder again") from error


_BASES: Final[Mapping[Basis, str]] = {
    "masses": "the owners' noisy masses: nothing else is known of them.",
    "bids": "winning bids, along noisy broadcasts: they are curator's and consumer's to know, and whoever is paid by "
    "them learns its own exactly.",
}
