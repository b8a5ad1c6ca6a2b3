"""What the auctions share: bids in clear to a trusted curator, records from whoever is asked, a summary of the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from comity.data import Encoding, LocalRecords, Records
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
from comity.methods.summary.auction import bids
from comity.methods.summary.auction.pool import Offer
from comity.methods.summary.constraints import Features, Payment
from comity.methods.summary.features import FourierFeatures
from comity.methods.summary.forms import Chosen, Within
from comity.methods.summary.sizes import CONSUMER, OWNER
from comity.privacy.loss import Loss
from comity.privacy.mechanisms.prefix_sums import MAX_ROUNDS

if TYPE_CHECKING:
    from comity.federation.assessment import Assessment
    from comity.federation.own_score import OwnScore

Floats = NDArray[np.float64]

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
    sizes: Mapping[str, int] = field(default_factory=dict)
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
        self, who: Consortium, *, loss: Loss, numbers: int, limit: float, asking: Mechanism, broadcast: Release
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
                grid=bids.GRID,
                times=self.records,
            ),
            Release(
                name="asked",
                source=COORDINATOR,
                to=COORDINATOR,
                protection=Curated(asking, of="bids"),
                form=Array((len(who.among(OWNER)),), "<i8"),
                times=self.records,
            ),
            broadcast,
        )

    def traded(self, who: Consortium, *broadcast_from: str) -> tuple[Release, ...]:
        """Broadcasts, asks, offers, and what curator and consumer have at the end."""
        owners = len(who.among(OWNER))
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
        return sent, {owner: float(values[0] * bids.GRID) for owner, values in sent.items()}

    def bought(
        self, parties: Parties, number: int, aim: Floats, made: Mapping[str, float], bits: NDArray[np.int64]
    ) -> dict[str, Offer]:
        """What those offer that the `bits` ask, by owner; an owner that offers anything else is lost."""
        owners = parties.consortium.among(OWNER)
        told = {owner: np.array([bit], "<i8") for owner, bit in zip(owners, bits.tolist())}

        def honest(owner: str, values: Mapping[str, Any]) -> None:
            wanted = bool(told[owner][0]) and made[owner] > bids.SILENT
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
        return abs(bids.best(self.features(offer["rows"]), aim)[1] - bid) <= 1e-5 * (1 + float(np.linalg.norm(aim)))

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

    def present(self, released: Mapping[str, Any], who: Consortium) -> Any:
        from comity.methods.summary.auction.presented import presented

        return presented(self, released, who)

    def score_own(self, presented: Any, records: LocalRecords, party: str) -> OwnScore | None:
        from comity.methods.summary.own_score import score_bought

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

    def protected(self, who: Consortium) -> int:
        return sum(self.sizes[party] for party in who.among(OWNER))
