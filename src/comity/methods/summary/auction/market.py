"""What both auctions share: owners send bids in clear to a trusted curator, it asks some of them for their records, and
the best records form the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from comity.data.row_products import clip_received, rough_unit_products
from comity.entropy import Stream
from comity.errors import Malformed, Refused
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Ball
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.declaration import Release
from comity.federation.declare.protection import Curated, Derived, Disclosed, EntrustedRounds, Mechanism
from comity.federation.declare.release import Array, Fields
from comity.federation.owner.site import Site
from comity.federation.protocol import step
from comity.methods.summary.features import LENGTH, FeatureMap, FourierFeatures, Unchanged, public_features
from comity.methods.summary.protocol import (
    CONSUMER,
    OWNER,
    ChosenRows,
    Features,
    Ranges,
    SummaryProtocol,
    find_consumer,
    release_seed,
)
from comity.privacy.loss import Loss
from comity.privacy.mechanisms.prefix_sums import MAX_ROUNDS

# Bids and ranks.
#
# With q records chosen whose features sum to S, and a target mean t, a record x lowers MMD² by 2/(q + 1) times
# t·φ(x) − S·φ(x)/(q + 1), up to terms that do not depend on x (`herding`). All owners bid along one public direction,
# which estimates t − S/(q + 1) from the noisy releases.

Floats = NDArray[np.float64]

MAX_BID = 1024.0
"""The largest bid. It decides the width of an integer and nothing else: bids serve only to rank owners."""
BID_GRID = 2.0**-40
NO_BID = -MAX_BID
"""The bid of an owner that has no record in a round."""


def find_best_bid(features: Floats, direction: Floats, shrink: float = 1.0) -> tuple[int, float]:
    """The index of the record with the largest bid, the first of equals, and the bid, clipped to its limit.

    A record's bid does not depend on other records, to the last bit, whatever direction a curator sends. `shrink` is a
    power of two that makes features no longer than one.
    """
    if not len(features):
        return -1, NO_BID
    bids = rough_unit_products(features * shrink, clip_received(direction)[None])[:, 0]
    place = int(np.argmax(bids))
    return place, float(np.clip(bids[place] / shrink, -MAX_BID, MAX_BID))


def rank_bids(bids: Mapping[str, float], owners: Sequence[str]) -> NDArray[np.int64]:
    """(owners,): 1 for the largest bid. Of equal bids the first owner's ranks higher; an owner without a bid is last.

    A bid that changes moves every other owner's rank by at most one, because the number of larger bids changes by one.
    """
    order = sorted(range(len(owners)), key=lambda place: (-bids.get(owners[place], -np.inf), place))
    ranks = np.empty(len(owners), np.int64)
    ranks[order] = np.arange(1, len(owners) + 1)
    return ranks


@dataclass(frozen=True, eq=False)
class Offer:
    """One encoded record, with its label if it has one."""

    row: Floats
    label: Any = None

    @classmethod
    def of(cls, sent: Mapping[str, Any]) -> Self:
        return cls(sent["rows"][0], sent["labels"][0] if "labels" in sent else None)


@dataclass(frozen=True, eq=False)
class PooledOffer:
    """An offer in the pool, with its owner's index and its bid."""

    owner: int
    offer: Offer
    bid: float


class Pool:
    """The offers of an auction, filled round by round.

    `sum` adds up the features of the winners, one for each round and no others; each is put on the `grid` of the sum's
    noise. No round looks at offers left over from earlier ones: they would carry a record into a round that is not its
    own.
    """

    def __init__(
        self, owners: Sequence[str], features: FeatureMap, labels: str | None = None, grid: float = 2.0**-20
    ) -> None:
        self._owners, self._features, self._labels, self._grid = tuple(owners), features, labels, grid
        self.sum: Floats = np.zeros(features.dimensions)
        self.winners: list[PooledOffer] = []
        self.left_over: list[PooledOffer] = []

    def close(self, offers: Mapping[str, Offer], bids: Mapping[str, float]) -> None:
        """End a round: the best of its offers wins, the first owner's where bids are equal."""
        entries = [
            PooledOffer(place, offers[owner], bids[owner])
            for place, owner in enumerate(self._owners)
            if owner in offers
        ]
        entries.sort(key=lambda one: (-one.bid, one.owner))
        if entries:
            self.winners.append(entries[0])
            self.sum = self.sum + np.rint(self._features(entries[0].offer.row[None])[0] / self._grid) * self._grid
        self.left_over += entries[1:]

    @property
    def seen(self) -> int:
        """The number of records that the curator received."""
        return len(self.winners) + len(self.left_over)

    def summary(self, records: int) -> dict[str, Any]:
        """The winners, and the best offers left over in place of rounds without one. No owner learns which, and no
        broadcast follows."""
        spare = sorted(self.left_over, key=lambda one: -one.bid)
        entries = [*self.winners, *spare[: records - len(self.winners)]]
        summary = {
            "rows": np.array([one.offer.row for one in entries], "<f8").reshape(len(entries), self._features.columns),
            "owners": np.array([one.owner for one in entries], "<i8"),
        }
        if self._labels:
            summary["labels"] = np.array([one.offer.label for one in entries], self._labels)
        return summary

    def attribution(self, target: Floats, spread: float) -> dict[str, Any]:
        """The winning records of each owner, its winning bids added up, its share of the positive ones, and the
        objective: the squared distance of the released target mean from zero and from the summary's mean, less what
        noise of deviation `spread` adds to both."""
        counts, values, bids = np.zeros(len(self._owners), "<i8"), *np.zeros((2, len(self._owners)))
        for one in self.winners:
            counts[one.owner] += 1
            values[one.owner] += max(0.0, one.bid)
            bids[one.owner] += one.bid
        whole = values.sum()
        mean = self.sum / max(1, len(self.winners))
        noise = len(target) * spread**2
        return {
            "quotas": counts,
            "shares": values / whole if whole else np.full(len(values), 1 / len(values)),
            "discrepancy": np.maximum(0.0, [target @ target - noise, (target - mean) @ (target - mean) - noise]),
            "seen": np.array([self.seen], "<i8"),
            "bids": bids,
        }


FEATURES = 140
"""The number of features of an auction where the study gives none: that of the published method."""
_CHOICE = "summary.choice"
HashForm = Literal["shifted", "cosines"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Market(SummaryProtocol):
    """An auction of `records` rounds. Subclasses say how the curator learns the target, what it broadcasts, whom it
    asks, and which records may bid (`bid`)."""

    version: ClassVar[int] = 4

    records: Annotated[int, Interval(ge=1, le=MAX_ROUNDS)]
    dimensions: Features
    deliver: Literal["records", "hashes"]

    @property
    def features(self) -> FeatureMap:
        """The public map, where owners hand over records."""
        return public_features(self.columns, self.dimensions, self.gamma)

    def draw_features(self, seed: bytes) -> FeatureMap:
        """The map of hashes, whose seed the curator does not know."""
        return FourierFeatures.draw(self.columns, self.dimensions, self.gamma, Stream(seed), shifted=True)

    @property
    def hash_form(self) -> HashForm:
        return "shifted"

    @property
    def hashed(self) -> bool:
        """Whether owners hand over hashes instead of records."""
        return self.deliver == "hashes"

    @property
    def curator_map(self) -> FeatureMap:
        """The features of what the curator receives: hashes are features already."""
        return Unchanged(self.dimensions, LENGTH / self.shrink) if self.hashed else self.features

    def map_at(self, site: Site) -> FeatureMap:
        """The features of a party's records, at the party."""
        return self.draw_features(self.seed_at(site)) if self.hashed else self.features

    @property
    def shrink(self) -> float:
        """A power of two that makes features no longer than one."""
        return 1.0

    # What leaves in every auction.

    def declare_bidding(
        self, consortium: Consortium, *, loss: Loss, numbers: int, limit: float, asking: Mechanism, broadcast: Release
    ) -> tuple[Release, ...]:
        """Bids of this many `numbers`, the bits of `asking` (one for each owner), and the release that broadcasts are
        made from. `loss` is what the bits and the broadcasts cost together."""
        return (
            Release(
                name="bids",
                source=OWNER,
                to=COORDINATOR,
                protection=EntrustedRounds(loss, ("asked", broadcast.name)),
                form=Array((numbers,), "<i8"),
                bound=Ball(limit),
                grid=BID_GRID,
                times=self.records,
            ),
            Release(
                name="asked",
                source=COORDINATOR,
                to=COORDINATOR,
                protection=Curated(asking, of="bids"),
                form=Array((len(consortium.among(OWNER)),), "<i8"),
                times=self.records,
            ),
            broadcast,
        )

    def declare_trade(self, consortium: Consortium, *broadcast_from: str) -> tuple[Release, ...]:
        """Broadcasts, asks, offers, and what curator and consumer have at the end."""
        owners = len(consortium.among(OWNER))
        width, within = self.curator_map.columns, Ranges.of(self.encoding, hashed=self.hashed)
        what = "the hash of the record" if self.hashed else "the record"
        return (
            *((release_seed(),) if self.hashed else ()),
            Release(
                name="broadcast",
                source=COORDINATOR,
                to=OWNER,
                protection=Derived(*broadcast_from),
                form=Array((self.dimensions,)),
                times=self.records,
            ),
            Release(
                name="ask",
                source=COORDINATOR,
                to=OWNER,
                protection=Derived("asked"),
                form=Array((1,), "<i8"),
                times=self.records,
            ),
            Release(
                name="offer",
                source=OWNER,
                to=COORDINATOR,
                protection=Disclosed(
                    f"{what} that it bid with, in each round in which it is asked; no differential privacy towards "
                    "curator and consumer",
                    "records_may_leave",
                    sealed=True,
                ),
                form=ChosenRows(width, 1, self.labels, within=within),
                times=self.records,
            ),
            Release(
                name="summary",
                source=COORDINATOR,
                to=(COORDINATOR, CONSUMER),
                protection=Derived("offer"),
                form=ChosenRows(width, self.records, self.labels, owners, within),
            ),
            Release(
                name="attribution",
                source=COORDINATOR,
                to=(COORDINATOR, CONSUMER),
                protection=Derived("offer", "bids"),
                form=Fields(
                    {
                        "quotas": Array((owners,), "<i8"),
                        "shares": Array((owners,)),
                        "discrepancy": Array((2,)),
                        "seen": Array((1,), "<i8"),
                        "bids": Array((owners,)),
                    }
                ),
            ),
        )

    # What the curator does.

    def deal_hash_seed(self, parties: Parties) -> None:
        """Have the consumer send the seed of the hashes to the owners, where hashes are handed over."""
        if self.hashed:
            parties.ask(self.deal_seed, to=[find_consumer(parties.consortium)])

    def collect_bids(
        self, parties: Parties, number: int, direction: Floats
    ) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
        """What every owner that is left sends as its bid along the direction, and the bids themselves."""
        least = parties.declaration["bids"].min_parties(parties.consortium)
        alive = [owner for owner in parties.consortium.among(OWNER) if owner in parties.alive]
        got = parties.ask(self.bid, to=alive, label=number, need=least, broadcast=direction)
        sent = {owner: values["bids"] for owner, values in got.items()}
        return sent, {owner: float(values[0] * BID_GRID) for owner, values in sent.items()}

    def buy_offers(
        self, parties: Parties, number: int, direction: Floats, bids: Mapping[str, float], bits: NDArray[np.int64]
    ) -> dict[str, Offer]:
        """The offers of the owners that the `bits` ask. An owner that offers another record than it bid with is
        dropped."""
        owners = parties.consortium.among(OWNER)
        asks = {owner: np.array([bit], "<i8") for owner, bit in zip(owners, bits.tolist())}

        def check_offer(owner: str, values: Mapping[str, Any]) -> None:
            wanted = bool(asks[owner][0]) and bids[owner] > NO_BID
            if ("offer" in values) != wanted or (wanted and not self._is_bid(values["offer"], direction, bids[owner])):
                raise Malformed(f"{owner} offers another record than the one that it bid with", code="form")

        each = {owner: {"ask": asks[owner]} for owner in bids}
        least = parties.declaration["bids"].min_parties(parties.consortium)
        sold = parties.ask(self.sell, each=each, label=number, need=least, valid=check_offer)
        return {owner: Offer.of(values["offer"]) for owner, values in sold.items() if "offer" in values}

    def _is_bid(self, offer: Mapping[str, Any], direction: Floats, bid: float) -> bool:
        if len(offer["rows"]) != 1:
            return False
        # Machines may differ in the last bits of a bid.
        tolerance = 1e-5 * (1 + float(np.linalg.norm(direction)))
        return abs(find_best_bid(self.curator_map(offer["rows"]), direction, self.shrink)[1] - bid) <= tolerance

    # What a site does in every auction.

    def bid(self, site: Site, broadcast: Floats) -> None:
        """The step that `collect_bids` asks for. A subclass says which records may bid."""
        raise NotImplementedError(f"{type(self).__name__} does not say which records bid")

    def keep_choice(self, site: Site, place: int) -> None:
        """Remember which record bids in this round; it stays here until the curator asks."""
        site.keep(_CHOICE, [int(site.label), place])

    @step(may_give=("offer",), times=MAX_ROUNDS)
    def sell(self, site: Site, ask: NDArray[np.int64]) -> dict[str, Any]:
        number, place = site.kept(_CHOICE, [-1, -1])
        if number != int(site.label):
            raise Refused("a record is handed over in the round in which it bid", code="undeclared")
        if not ask[0] or place < 0:
            return {}
        self.note_sale(site, place)
        row = site.features[place : place + 1]
        handed = self.map_at(site)(row) if self.hashed else row
        offer: dict[str, Any] = {"rows": np.ascontiguousarray(handed, "<f8")}
        if self.labels:
            offer["labels"] = np.ascontiguousarray(site.labels[place : place + 1], self.labels)
        return {"offer": offer}

    def note_sale(self, site: Site, place: int) -> None:
        """Called when a record is handed over."""

    # What comes out.

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> Any:
        """Bought records, or hashes, with the value of winning bids; KeyError for a receiver that was not sent them."""
        attribution, summary = released["attribution"], released["summary"]
        bought = self.describe_purchase(attribution, consortium, seen=int(attribution["seen"][0]), basis="bids")
        if not self.hashed:
            return self.present_records(summary, bought, consortium)
        from comity.methods.summary.artefact import BoughtHashes

        rows, sellers = summary["rows"], summary["owners"]
        return BoughtHashes(rows, summary.get("labels"), sellers, bought, self.gamma, self.columns, self.hash_form)

    @property
    def describe_hashes(self) -> tuple[str, ...]:
        """What the plan says where hashes are handed over."""
        if not self.hashed:
            return ()
        return (
            "hashes are made under a seed that consumer and owners share. The curator learns bids, labels, and "
            "distances between the records that it asks for; anyone with the seed can test guesses of a record",
        )
