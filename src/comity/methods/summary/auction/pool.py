"""What the curator holds: the summary so far, what was offered and not taken, and what winning bids were worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from comity.methods.summary.features import FourierFeatures

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Offer:
    """One record, encoded, with its label where there are any."""

    row: Floats
    label: Any = None

    @classmethod
    def of(cls, sent: Mapping[str, Any]) -> Self:
        return cls(sent["rows"][0], sent["labels"][0] if "labels" in sent else None)


@dataclass(frozen=True, eq=False)
class Taken:
    owner: int
    offer: Offer
    bid: float


class Pool:
    """Filled round by round. `sum` is over the features of the winners, one of each round and no others; what is left
    over is never looked at again while rounds go on, because what was offered in an earlier round would carry a record
    into another one than its own. Features are put on the `grid` of the sum's noise one by one."""

    def __init__(
        self, owners: Sequence[str], features: FourierFeatures, labels: str | None = None, grid: float = 2.0**-20
    ) -> None:
        self._owners, self._features, self._labels, self._grid = tuple(owners), features, labels, grid
        self.sum: Floats = np.zeros(features.dimensions)
        self.winners: list[Taken] = []
        self.left_over: list[Taken] = []

    def close(self, offers: Mapping[str, Offer], bids: Mapping[str, float]) -> None:
        """End a round: the best of its offers wins, the first owner's where bids are equal."""
        found = [
            Taken(place, offers[owner], bids[owner]) for place, owner in enumerate(self._owners) if owner in offers
        ]
        found.sort(key=lambda one: (-one.bid, one.owner))
        if found:
            self.winners.append(found[0])
            self.sum = self.sum + np.rint(self._features(found[0].offer.row[None])[0] / self._grid) * self._grid
        self.left_over += found[1:]

    @property
    def seen(self) -> int:
        """Records that the curator touched."""
        return len(self.winners) + len(self.left_over)

    def taken(self, records: int) -> list[Taken]:
        """The winners, and for rounds in which nobody was asked the best of what is left over. No owner is told, and no
        broadcast follows."""
        spare = sorted(self.left_over, key=lambda one: -one.bid)
        return [*self.winners, *spare[: records - len(self.winners)]]

    def summary(self, records: int) -> dict[str, Any]:
        found = self.taken(records)
        made = {
            "rows": np.array([one.offer.row for one in found], "<f8").reshape(len(found), self._features.columns),
            "owners": np.array([one.owner for one in found], "<i8"),
        }
        if self._labels:
            made["labels"] = np.array([one.offer.label for one in found], self._labels)
        return made

    def attribution(self, target: Floats, spread: float) -> dict[str, Any]:
        """Records of each owner, its share of the winning bids that are worth something, and the objective: how far the
        target mean, as released, is from nothing and from the summary's mean, less what noise adds to both."""
        counts, values = np.zeros(len(self._owners), "<i8"), np.zeros(len(self._owners))
        for one in self.winners:
            counts[one.owner] += 1
            values[one.owner] += max(0.0, one.bid)
        whole = values.sum()
        mean = self.sum / max(1, len(self.winners))
        noise = len(target) * spread**2
        return {
            "quotas": counts,
            "shares": values / whole if whole else np.full(len(values), 1 / len(values)),
            "discrepancy": np.maximum(0.0, [target @ target - noise, (target - mean) @ (target - mean) - noise]),
            "seen": np.array([self.seen], "<i8"),
        }
