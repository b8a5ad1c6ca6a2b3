"""What the auctions share: bids in clear to a trusted curator, records from the owners that it asks, a summary of the
best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from comity.data import Encoding, LocalRecords, Records
from comity.data.row_products import clip_received, rough_unit_products
from comity.entropy import Stream
from comity.errors import Malformed, Refused
from comity.federation.constraints import Positive
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Ball
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.declaration import Release
from comity.federation.declare.protection import Curated, Derived, Disclosed, EntrustedRounds, Mechanism
from comity.federation.declare.release import Array, Fields
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol, step
from comity.methods.declared_records import Sizes, size_of
from comity.methods.summary.features import FourierFeatures
from comity.methods.summary.terms import CONSUMER, OWNER, Chosen, Features, Payment, Within
from comity.privacy.loss import Loss
from comity.privacy.mechanisms.prefix_sums import MAX_ROUNDS

if TYPE_CHECKING:
    from comity.federation.assessment import Assessment
    from comity.federation.own_score import OwnScore

# Bids and ranks.
#
# With q records chosen whose features sum to S, and a target mean t, a record x lowers MMD² by 2/(q + 1) times
# t·φ(x) − S·φ(x)/(q + 1), up to terms that do not depend on x (`herding`). All owners bid along one public direction,
# which estimates t − S/(q + 1) from the noisy releases.

Floats = NDArray[np.float64]

MAX_BID = 1024.0
"""No bid is larger. It decides how wide an integer is and nothing else: ranks are all that a bid is for."""
BID_GRID = 2.0**-40
NO_BID = -MAX_BID
"""The bid of an owner that has no record in a round."""


def find_best_bid(features: Floats, direction: Floats) -> tuple[int, float]:
    """The place of the record with the largest bid, the first where several have it, and the bid, within its limit.

    A record's bid does not depend on other records, to the last bit, whatever direction a curator sends.
    """
    if not len(features):
        return -1, NO_BID
    found = rough_unit_products(features, clip_received(direction)[None])[:, 0]
    place = int(np.argmax(found))
    return place, float(np.clip(found[place], -MAX_BID, MAX_BID))


def rank_bids(bids: Mapping[str, float], owners: Sequence[str]) -> NDArray[np.int64]:
    """(owners,): 1 for the largest bid. Ties go to the owner that stands first, and who made no bid comes last.

    A bid that changes moves every other owner's rank by one at most: how many bids stand before it changes by one.
    """
    order = sorted(range(len(owners)), key=lambda place: (-bids.get(owners[place], -np.inf), place))
    out = np.empty(len(owners), np.int64)
    out[order] = np.arange(1, len(owners) + 1)
    return out


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


FEATURES = 140
"""As many as the published method."""
_CHOICE = "summary.choice"


@dataclass(frozen=True, kw_only=True, eq=False)
class Market(Protocol):
    """`records` rounds of an auction. Subclasses say how the curator learns the target, what it broadcasts, whom it
    asks, and which records may bid (`bid`)."""

    name: ClassVar[str] = "summary"
    version: ClassVar[int] = 3
    roles: ClassVar[tuple[str, ...]] = (OWNER, CONSUMER)

    columns: int
    gamma: Positive
    sizes: Sizes = field(default_factory=dict)
    records: Annotated[int, Interval(ge=1, le=MAX_ROUNDS)] = 100
    labels: Literal["<i8", "<f8"] | None = None
    dimensions: Features = FEATURES
    payment: Payment = 100.0
    width_from: str = "given"
    image: tuple[int, int] | None = None
    encoding: Encoding | None = field(default=None, repr=False)

    @property
    def stackable(self) -> bool:
        return False

    @cached_property
    def features(self) -> FourierFeatures:
        """The public map; its seed is a label that everybody knows."""
        stream = Stream.public("summary features", self.columns, self.dimensions)
        return FourierFeatures.drawn(self.columns, self.dimensions, self.gamma, stream)

    # What leaves in every auction.

    def announced(
        self, consortium: Consortium, *, loss: Loss, numbers: int, limit: float, asking: Mechanism, broadcast: Release
    ) -> tuple[Release, ...]:
        """Bids of so many `numbers`, at a `loss` that whom the curator asks and what it broadcasts have between them;
        the bits of `asking`, one for each owner; the release that broadcasts are made from."""
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

    def traded(self, consortium: Consortium, *broadcast_from: str) -> tuple[Release, ...]:
        """Broadcasts, asks, offers, and what curator and consumer have at the end."""
        owners = len(consortium.among(OWNER))
        return (
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
                    "the record that it bid with, in each round in which it is asked; no differential privacy towards "
                    "curator and consumer",
                    "records_may_leave",
                    sealed=True,
                ),
                form=Chosen(self.columns, 1, self.labels, within=Within.of(self.encoding)),
                times=self.records,
            ),
            Release(
                name="summary",
                source=COORDINATOR,
                to=(COORDINATOR, CONSUMER),
                protection=Derived("offer"),
                form=Chosen(self.columns, self.records, self.labels, owners, Within.of(self.encoding)),
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
                    }
                ),
            ),
        )

    # What the curator does in every round.

    def offered(self, parties: Parties, number: int, aim: Floats) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
        """What every owner that is left sends as its bid along `aim`, and the bids themselves."""
        least = parties.declaration["bids"].min_parties(parties.consortium)
        alive = [owner for owner in parties.consortium.among(OWNER) if owner in parties.alive]
        got = parties.ask(self.bid, to=alive, label=number, need=least, broadcast=aim)
        sent = {owner: values["bids"] for owner, values in got.items()}
        return sent, {owner: float(values[0] * BID_GRID) for owner, values in sent.items()}

    def bought(
        self, parties: Parties, number: int, aim: Floats, made: Mapping[str, float], bits: NDArray[np.int64]
    ) -> dict[str, Offer]:
        """What those offer that the `bits` ask, by owner; an owner that offers anything else is lost."""
        owners = parties.consortium.among(OWNER)
        told = {owner: np.array([bit], "<i8") for owner, bit in zip(owners, bits.tolist())}

        def honest(owner: str, values: Mapping[str, Any]) -> None:
            wanted = bool(told[owner][0]) and made[owner] > NO_BID
            if ("offer" in values) != wanted or (wanted and not self._is_bid(values["offer"], aim, made[owner])):
                raise Malformed(f"{owner} offers another record than the one that it bid with", code="form")

        each = {owner: {"ask": told[owner]} for owner in made}
        least = parties.declaration["bids"].min_parties(parties.consortium)
        sold = parties.ask(self.sell, each=each, label=number, need=least, valid=honest)
        return {owner: Offer.of(values["offer"]) for owner, values in sold.items() if "offer" in values}

    def _is_bid(self, offer: Mapping[str, Any], aim: Floats, bid: float) -> bool:
        if len(offer["rows"]) != 1:
            return False
        # Another machine's last bits are no lie.
        return abs(find_best_bid(self.features(offer["rows"]), aim)[1] - bid) <= 1e-5 * (1 + float(np.linalg.norm(aim)))

    # What a site does in every auction.

    def bid(self, site: Site, broadcast: Floats) -> None:
        """The step that `offered` asks for: a form of the auction says which records may bid."""
        raise NotImplementedError(f"{type(self).__name__} does not say which records bid")

    def chosen(self, site: Site, place: int) -> None:
        """Remember which record bids in this round; it stays here until the curator asks."""
        site.keep(_CHOICE, [int(site.label), place])

    @step(may_give=("offer",), times=MAX_ROUNDS)
    def sell(self, site: Site, ask: NDArray[np.int64]) -> dict[str, Any]:
        number, place = site.kept(_CHOICE, [-1, -1])
        if number != int(site.label):
            raise Refused("a record is handed over in the round in which it bid", code="undeclared")
        if not ask[0] or place < 0:
            return {}
        self.sold(site, place)
        found: dict[str, Any] = {"rows": np.ascontiguousarray(site.features[place : place + 1], "<f8")}
        if self.labels:
            found["labels"] = np.ascontiguousarray(site.labels[place : place + 1], self.labels)
        return {"offer": found}

    def sold(self, site: Site, place: int) -> None:
        """Called when a record is handed over."""

    # What a consumer works with.

    def present(self, released: Mapping[str, Any], consortium: Consortium) -> Any:
        """Bought records with the value of winning bids; KeyError for a receiver that was not sent them."""
        from comity.methods.summary.artefact import Bought, BoughtRecords, RunSetting

        summary, attribution = released["summary"], released["attribution"]
        bought = Bought.of(
            tuple(consortium.among(OWNER)),
            attribution,
            payment=self.payment,
            asked=self.records,
            seen=int(attribution["seen"][0]),
            basis="bids",
        )
        schema = None if self.encoding is None else replace(self.encoding.schema, identifier=None)
        setting = RunSetting.of(self.gamma, consortium)
        return BoughtRecords(
            summary["rows"], summary.get("labels"), summary["owners"], bought, schema, self.image, setting
        )

    def score_own(self, presented: Any, records: LocalRecords, party: str) -> OwnScore | None:
        from comity.methods.summary.assessment import score_bought

        return score_bought(presented, records)

    def assess(self, presented: Any, train: Sequence[Records] | None, test: Records) -> Assessment:
        from comity.methods.summary.assessment import assess

        return assess(presented, train, test)

    # What the plan says.

    @property
    def kernel_note(self) -> str:
        return (
            f"kernel: exp(-{self.gamma:.4g} |x - y|^2), its width {self.width_from}; {self.dimensions} random features"
        )

    def protected(self, consortium: Consortium) -> int:
        return sum(size_of(self.sizes, party) for party in consortium.among(OWNER))
