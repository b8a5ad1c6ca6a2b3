"""Summaries by auction, corrected: owners bid; in each round a trusted curator asks a few of them and adds one record.

After K. Sarpatwar et al., Differentially Private Distributed Data Summarization under Covariate Shift, NeurIPS 2019,
with what its proof lacks (proof.md):

    1  the consumer releases a noisy mean of features                                               (`wish`)
    in each round
    2  each owner bids with its best record among those of the round, along the broadcast           (`bid`)
    3  the curator asks the owners of small noisy rank; the best record it gets joins the summary   (`sell`)
    4  it broadcasts the direction of the next bids, from the noisy running sum

A record bids in one round. A noisy rank decides who is asked. No offer is carried over to the next round, and bids
follow from the broadcast alone. Unlike the published auction, the summary starts empty, without public records.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from math import exp, log
from typing import Annotated, Any

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import OpenedValue, RecordSum
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.declaration import DISCLOSING, Declaration, Release
from comity.federation.declare.protection import Perturbed
from comity.federation.declare.release import Array
from comity.federation.owner.site import Site
from comity.federation.protocol import step
from comity.methods.summary.auction.market import MAX_BID, Market, Pool, find_best_bid, rank_bids
from comity.methods.summary.features import LENGTH
from comity.methods.summary.protocol import HEADROOM, OWNER, ROUND_DOWN, release_wish, subtract_square
from comity.privacy.accounting import gaussian_budget, pure_square
from comity.privacy.loss import GDP, LOSSES, Pure
from comity.privacy.mechanisms import NoisyThreshold, PrefixSums

# Whom the curator asks: owners with rank + Laplace(1/ε) <= 1 + ln(1/(2β))/ε. The best bidder is missed with probability
# β.


def ask_threshold(epsilon: float, missed: float) -> float:
    """The largest noisy rank that is asked: rank 1 with noise lies beyond it with probability `missed`."""
    return 1 + log(1 / (2 * missed)) / epsilon


def ask_mechanism(loss: Pure, readers: int, missed: float) -> NoisyThreshold:
    """A bit for every owner. Up to `readers` owners may pool theirs; `loss` is that of all their bits together.

    Sensitivity  1 for each bit: a record moves its owner's bid, which moves the rank of every other owner by at most
                 one. Its own owner's bit is no secret from that owner.
    """
    epsilon = float(loss.epsilon) / readers
    return NoisyThreshold(loss=loss, sensitivity=1.0, threshold=-ask_threshold(epsilon, missed), touched=readers)


def expected_asks(owners: int, epsilon: float, missed: float) -> float:
    """The mean number of owners asked in a round. It depends on no record: ranks are 1 … owners in any case."""
    limit = ask_threshold(epsilon, missed)
    return sum(_ask_probability(limit - rank, epsilon) for rank in range(1, owners + 1))


def _ask_probability(margin: float, epsilon: float) -> float:
    tail = exp(-epsilon * abs(margin)) / 2
    return 1 - tail if margin >= 0 else tail


# An owner's loss is divided over the bits that say whom the curator asks, and the running sum.
#
# A record bids in one round (`draw_rounds`). It moves the bits of that round and one summand of the running sum. Its
# loss is that of one round's bits and of the whole sequence of sums, whatever the number of rounds.

_FOUR_DIGITS = Context(prec=4, rounding=ROUND_FLOOR)
_HALF_PI = Decimal("1.571")


@dataclass(frozen=True)
class AuctionBudget:
    """`asked` is the loss by all bits that the colluding owners see in a round, `running` that by the sums, and `wish`
    that of the consumer. `readers` is the number of owners that may pool their bits."""

    asked: Pure
    running: GDP
    wish: GDP
    readers: int

    @classmethod
    def of(cls, consortium: Consortium, share: float) -> AuctionBudget:
        """`share` is the part of μ² for the bits."""
        whole = gaussian_budget(consortium.loss)
        asked = _pure_within(ROUND_DOWN.multiply(whole.square, Decimal(repr(share))))
        running = subtract_square(whole, pure_square(asked.epsilon))
        return cls(asked, running, whole, max(1, consortium.colluders))

    @property
    def owner(self) -> GDP:
        """The loss of an owner's record by the whole auction."""
        return GDP.squared(LOSSES.add(self.running.square, pure_square(self.asked.epsilon)))

    @property
    def each(self) -> float:
        """ε_r: what one owner's bit of a round tells it about another owner's record."""
        return float(self.asked.epsilon) / self.readers


def _pure_within(square: Decimal) -> Pure:
    """The largest ε of four digits whose μ² is at most `square`, because μ² of a pure ε is at most π/2·ε²
    (`pure_square`)."""
    return Pure(_FOUR_DIGITS.sqrt(_FOUR_DIGITS.divide(square, _HALF_PI)).next_minus(_FOUR_DIGITS))


Floats = NDArray[np.float64]


def bid_direction(target: Floats, running: Floats, chosen: int) -> Floats:
    """t − S/(q + 1) for the noisy target mean t and the noisy sum S of `chosen` = q records' features.

    S is used as it is, although in the first rounds it is more noise than sum: the noise makes every round look for
    other records. With S shrunk towards its expectation all rounds choose what is nearest to the target's mean, and the
    summary is about five times as far from the target (settled on two splits of handwritten digits, ε = 1).
    """
    return np.asarray(target - running / (chosen + 1), np.float64)


# A record bids in one public round, drawn from its place in its owner's file.
#
# The record that replaces another takes its place, hence its round. Given the broadcasts, neighbouring files differ in
# the bids of one round. Records are spread evenly over rounds, so an owner with enough records bids in every round.


def draw_rounds(records: int, rounds: int, stream: Stream) -> NDArray[np.int64]:
    """(records,): the round of each place. The public `stream` differs from owner to owner."""
    drawn = np.empty(records, np.int64)
    drawn[stream.permutation(records)] = np.arange(records) % rounds
    return drawn


Missed = Annotated[float, Interval(gt=0, lt=0.5)]
AskShare = Annotated[float, Interval(gt=0, lt=1)]


@dataclass(frozen=True, kw_only=True, eq=False)
class AuctionSummary(Market):
    """`records` records of all owners, bought one by one from the best bidder.

    Adversary    up to `colluders` owners that pool what they saw. The curator is trusted: it sees every bid and each
                 record that it asks for. Towards curator and consumer there is no differential privacy.
    Unit         a record, replaced: sizes are public.
    Learned      each owner: the broadcasts, and whether it was asked. Curator and consumer: the chosen records.
    Sensitivity  2 for the running sum, to which a record may be added in one round; 1 for the rank of each other owner
                 in that round; 2 for the consumer's sum (proof.md, 2 to 4).

    `missed` is the probability that the best bidder of a round is not asked, `ask_share` the part of the loss for the
    bits that say who is asked.
    """

    missed: Missed
    ask_share: AskShare

    # What the study fixes.

    @property
    def title(self) -> str:
        return f"summary (auction, {self.records} rounds, {self.dimensions} features)"

    def budget(self, consortium: Consortium) -> AuctionBudget:
        return AuctionBudget.of(consortium, self.ask_share)

    def running(self, consortium: Consortium) -> PrefixSums:
        """The noise of the sums before rounds 2, 3, …; an auction of one round broadcasts no sum."""
        return PrefixSums(loss=self.budget(consortium).running, rounds=max(1, self.records - 1))

    # What leaves.

    def declare(self, consortium: Consortium) -> Declaration:
        self.check_terms(consortium, self.records)
        budget, width, owners = self.budget(consortium), self.dimensions, len(consortium.among(OWNER))
        wished = HEADROOM * self.count_wished(consortium)
        return Declaration(
            (
                release_wish(budget.wish, width, RecordSum(2.0 * LENGTH, LENGTH * wished, wished)),
                *self.declare_bidding(
                    consortium,
                    loss=budget.owner,
                    numbers=1,
                    limit=MAX_BID,
                    asking=ask_mechanism(budget.asked, budget.readers, self.missed),
                    broadcast=Release(
                        name="running",
                        source=COORDINATOR,
                        to=COORDINATOR,
                        protection=Perturbed(self.running(consortium), of="bids"),
                        form=Array((width,)),
                        bound=OpenedValue(l2=2.0 * LENGTH, limit=LENGTH * self.records),
                        times=max(1, self.records - 1),
                    ),
                ),
                *self.declare_trade(consortium, "wish", "running"),
            ),
            adversary=f"up to {budget.readers} of {owners} owners that pool what they saw; the curator is trusted and "
            "sees every bid, and towards curator and consumer there is no differential privacy for the records that "
            "an owner is asked for",
            claim=DISCLOSING,
        )

    # What the curator does.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        consortium = parties.consortium
        owners = tuple(consortium.among(OWNER))
        self.deal_hash_seed(parties)
        target = parties.sum(self.wish).value / self.count_wished(consortium)
        grid = parties.declaration["running"].scale(consortium).grid
        pool, running = Pool(owners, self.curator_map, self.labels, grid), np.zeros(self.dimensions)
        for number in range(self.records):
            direction = bid_direction(target, running, number)
            _, bids = self.collect_bids(parties, number, direction)
            bits = parties.compute("asked", -rank_bids(bids, owners))
            pool.close(self.buy_offers(parties, number, direction, bids, bits), bids)
            if number + 1 < self.records:
                running = parties.perturb("running", pool.sum)
        return {
            "summary": pool.summary(self.records),
            "attribution": pool.attribution(target, self._spread(consortium)),
        }

    def _spread(self, consortium: Consortium) -> float:
        """The deviation of the noise on one coordinate of the target."""
        return self.declared(consortium)["wish"].opened_deviation(consortium) / self.count_wished(consortium)

    # What a site does.

    @step(sends="wish")
    def wish(self, site: Site) -> None:
        self.warn_owner(site)
        features = self.map_at(site)
        site.contribute(site.total(lambda rows: features(rows.features).sum(axis=0)))

    @step(sends="bids")
    def bid(self, site: Site, broadcast: Floats) -> None:
        """Bid with the best of this round's records."""
        number = int(site.label)
        if not number:
            self.warn_owner(site)
        stream = site.public_stream("summary rounds", site.party)
        mine = np.flatnonzero(draw_rounds(len(site.records), self.records, stream) == number)
        place, bid = find_best_bid(self.map_at(site)(site.features[mine]), broadcast)
        self.keep_choice(site, int(mine[place]) if place >= 0 else -1)
        site.contribute(np.array([bid]))

    # What the plan says.

    def expectation(self, consortium: Consortium) -> str:
        budget, owners = self.budget(consortium), len(consortium.among(OWNER))
        noise = self.declared(consortium)["running"].opened_deviation(consortium) / self.records
        useless = ", so expect records that are like the target one by one, not together" if noise > 0.1 else ""
        number = expected_asks(owners, budget.each, self.missed)
        return (
            f"about {number:.3g} of {owners} owners are asked in a round; at the end the mean of the summary's "
            f"features, which have length 1, is known to {noise:.2g} in each direction{useless}"
        )

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        budget = self.budget(consortium)
        return (
            self.describe_kernel(self.dimensions),
            *self.describe_hashes,
            f"being asked tells one owner eps {budget.each:.3g} about a record of another, and {budget.readers} that "
            f"pool what they saw {budget.asked}, once: a record bids in one round. The rest of the loss is that of the "
            "running sum",
            "curator and consumer learn the value of each owner, its share of winning bids; an owner that is paid by "
            "it learns its share exactly, outside the guarantee",
        )

    def warnings(self, consortium: Consortium) -> tuple[str, ...]:
        return (
            "every broadcast of an auction carries noise: at epsilon 1 and 100 records the auction came closer to the "
            'consumer than a uniform sample on one of three datasets tried; selection = "one-shot" has less noise',
        )
