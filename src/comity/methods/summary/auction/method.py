"""Summaries by auction, corrected: owners bid; in each round a trusted curator asks few of them and adds one record.

After K. Sarpatwar et al., Differentially Private Distributed Data Summarization under Covariate Shift, NeurIPS 2019,
with what its proof lacks (proof.md):

    1  the consumer releases a noisy mean of features                                               (`wish`)
    in each round
    2  each owner bids with its best record among those of the round, along the broadcast           (`bid`)
    3  the curator asks the owners of small noisy rank; the best record it gets joins the summary   (`sell`)
    4  it broadcasts the direction of the next bids, from the noisy running sum

A record bids in one round. A noisy rank decides who is asked. Nothing of a round is left over for the next, and bids
follow from the broadcast alone. Seeds have no part in it.
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
from comity.federation.declare.bounds import Opened, RecordSum
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.declaration import DISCLOSING, Declaration, Release
from comity.federation.declare.protection import Noised, Perturbed
from comity.federation.declare.release import Array
from comity.federation.owner.site import Site
from comity.federation.protocol import step
from comity.methods.declared_records import size_of, warn_owner
from comity.methods.summary.auction.market import MAX_BID, Market, Offer, Pool, find_best_bid, rank_bids
from comity.methods.summary.features import LENGTH
from comity.methods.summary.terms import CONSUMER, HEADROOM, OWNER, check_terms, find_consumer
from comity.privacy.accounting import gaussian_budget, pure_square
from comity.privacy.loss import GDP, LOSSES, Pure
from comity.privacy.mechanisms import Gaussian, NoisyThreshold, PrefixSums

# Whom the curator asks: owners with rank + Laplace(1/ε) <= 1 + ln(1/(2β))/ε, so the best is missed with probability β.


def ask_threshold(epsilon: float, missed: float) -> float:
    """The largest noisy rank that is asked: half of exp(−ε·distance) lies beyond it at rank 1."""
    return 1 + log(1 / (2 * missed)) / epsilon


def ask_mechanism(loss: Pure, readers: int, missed: float) -> NoisyThreshold:
    """Bits for all owners, of which `readers` may pool theirs: `loss` is of all of these, an equal part for each.

    Sensitivity  1 for each bit: a record moves its owner's bid, and that the rank of every other owner by one at most.
                 The bit that its own owner sees is no secret from it.
    """
    epsilon = float(loss.epsilon) / readers
    return NoisyThreshold(loss=loss, sensitivity=1.0, threshold=-ask_threshold(epsilon, missed), touched=readers)


def expected_asks(owners: int, epsilon: float, missed: float) -> float:
    """How many are asked in a round, on average; it depends on no record, because ranks are 1 … owners in any case."""
    limit = ask_threshold(epsilon, missed)
    return sum(_ask_probability(limit - rank, epsilon) for rank in range(1, owners + 1))


def _ask_probability(room: float, epsilon: float) -> float:
    tail = exp(-epsilon * abs(room)) / 2
    return 1 - tail if room >= 0 else tail


# How an owner's loss is divided: bits that say whom the curator asks, and the running sum.
#
# A record bids in one round (`draw_rounds`). It moves the bits of that round and one summand of the running sum. So it
# loses one round's bits and the whole sequence of sums, whatever the number of rounds.

_ROUND_DOWN = Context(prec=50, rounding=ROUND_FLOOR)
_FOUR_DIGITS = Context(prec=4, rounding=ROUND_FLOOR)
_HALF_PI = Decimal("1.571")


@dataclass(frozen=True)
class AuctionBudget:
    """`asked` is the loss by all bits that the colluding owners see in a round, `running` that of the sums, `wish` the
    consumer's; `readers` is how many owners may pool their bits."""

    asked: Pure
    running: GDP
    wish: GDP
    readers: int

    @classmethod
    def of(cls, consortium: Consortium, share: float) -> AuctionBudget:
        """`share` is the part of μ² that the bits have."""
        whole = gaussian_budget(consortium.loss)
        bits = _ROUND_DOWN.multiply(whole.square, Decimal(repr(share)))
        asked = _pure_within(bits)
        left = _ROUND_DOWN.subtract(whole.square, pure_square(asked.epsilon))
        # A little less, so that the parts never exceed the whole.
        left = _ROUND_DOWN.subtract(left, Decimal(1).scaleb(whole.square.adjusted() - 40))
        return cls(asked, GDP.squared(left), whole, max(1, consortium.colluders))

    @property
    def owner(self) -> GDP:
        """What an owner's record loses by all of it."""
        return GDP.squared(LOSSES.add(self.running.square, pure_square(self.asked.epsilon)))

    @property
    def each(self) -> float:
        """ε_r: what one owner's own bit of a round tells it about another one's record."""
        return float(self.asked.epsilon) / self.readers


def _pure_within(square: Decimal) -> Pure:
    """An ε whose μ² is at most `square`, to four digits: μ² of a pure ε is at most π/2·ε² (`pure_square`)."""
    return Pure(_FOUR_DIGITS.sqrt(_FOUR_DIGITS.divide(square, _HALF_PI)).next_minus(_FOUR_DIGITS))


Floats = NDArray[np.float64]


def bid_direction(target: Floats, running: Floats, chosen: int) -> Floats:
    """t − S/(q + 1) for the noisy target mean t and the noisy sum S of `chosen` = q records' features.

    The noise of S stays in it, in the first rounds more noise than sum: it sends every round after other records. With
    S shrunk to what can be believed of it all rounds choose what is nearest to the target's mean, and the summary is
    about five times as far from the target (settled on two splits of handwritten digits, ε = 1).
    """
    return np.asarray(target - running / (chosen + 1), np.float64)


# In which round a record may bid: one public round, drawn from its place in its owner's file.
#
# A replaced record leaves its place, and hence its round, to the other one: given the broadcasts, neighbouring files
# differ in the bids of one round. Rounds are as even as possible, so an owner with enough records bids in every round.


def draw_rounds(records: int, rounds: int, stream: Stream) -> NDArray[np.int64]:
    """(records,): the round of each place, from public chance that is each owner's own."""
    out = np.empty(records, np.int64)
    out[stream.permutation(records)] = np.arange(records) % rounds
    return out


Missed = Annotated[float, Interval(gt=0, lt=0.5)]
AskShare = Annotated[float, Interval(gt=0, lt=1)]


@dataclass(frozen=True, kw_only=True, eq=False)
class AuctionSummary(Market):
    """`records` records of all owners, bought one by one from who bids best for them.

    Adversary    up to `colluders` owners that pool what they saw. The curator is trusted: it sees every bid and each
                 record that it asks for. Towards curator and consumer there is no differential privacy.
    Unit         a record, replaced: sizes are public.
    Learned      owners: the broadcasts, and each whether it was asked. Curator and consumer: the chosen records.
    Sensitivity  2 for the running sum, in which a record may stand for one round; 1 for the rank of each other owner,
                 in that round; 2 for the consumer's sum (proof.md, 2 to 4).

    `missed` is the chance that the best bidder of a round is not asked; `ask_share` the part of the loss that the
    asking has.
    """

    missed: Missed = 0.05
    ask_share: AskShare = 0.1

    # What the study fixes.

    @property
    def title(self) -> str:
        return f"summary (auction, {self.records} rounds, {self.dimensions} features)"

    def budget(self, consortium: Consortium) -> AuctionBudget:
        return AuctionBudget.of(consortium, self.ask_share)

    def running(self, consortium: Consortium) -> PrefixSums:
        """The noise of the sums before rounds 2, 3, …; of a single round there is none to broadcast."""
        return PrefixSums(loss=self.budget(consortium).running, rounds=max(1, self.records - 1))

    # What leaves.

    def declare(self, consortium: Consortium) -> Declaration:
        check_terms(consortium, self.sizes, self.records)
        budget, width, owners = self.budget(consortium), self.dimensions, len(consortium.among(OWNER))
        wished = HEADROOM * size_of(self.sizes, find_consumer(consortium))
        return Declaration(
            (
                Release(
                    name="wish",
                    source=CONSUMER,
                    to=COORDINATOR,
                    protection=Noised(Gaussian(budget.wish)),
                    form=Array((width,), "<i8"),
                    bound=RecordSum(2.0 * LENGTH, LENGTH * wished, wished),
                ),
                *self.announced(
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
                        bound=Opened(l2=2.0 * LENGTH, limit=LENGTH * self.records),
                        times=max(1, self.records - 1),
                    ),
                ),
                *self.traded(consortium, "wish", "running"),
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
        count = size_of(self.sizes, find_consumer(consortium))
        target = parties.sum(self.wish).value / count
        grid = parties.declaration["running"].scale(consortium).grid
        pool, running = Pool(owners, self.features, self.labels, grid), np.zeros(self.dimensions)
        for number in range(self.records):
            aim = bid_direction(target, running, number)
            offers, made = self._round(parties, number, aim)
            pool.close(offers, made)
            if number + 1 < self.records:
                running = parties.perturb("running", pool.sum)
        return {
            "summary": pool.summary(self.records),
            "attribution": pool.attribution(target, self._spread(consortium)),
        }

    def _spread(self, consortium: Consortium) -> float:
        """Deviation of the noise on one coordinate of the target."""
        return self.declared(consortium)["wish"].opened_deviation(consortium) / size_of(
            self.sizes, find_consumer(consortium)
        )

    def _round(self, parties: Parties, number: int, aim: Floats) -> tuple[dict[str, Offer], dict[str, float]]:
        """What who was asked offers, by owner, and all bids."""
        _, made = self.offered(parties, number, aim)
        bits = parties.compute("asked", -rank_bids(made, parties.consortium.among(OWNER)))
        return self.bought(parties, number, aim, made, bits), made

    # What a site does.

    @step(sends="wish")
    def wish(self, site: Site) -> None:
        warn_owner(site, size_of(self.sizes, site.party), "summary.sizes")
        site.contribute(site.total(lambda rows: self.features(rows.features).sum(axis=0)))

    @step(sends="bids")
    def bid(self, site: Site, broadcast: Floats) -> None:
        """The best of this round's records; which it is stays here until the curator asks."""
        number = int(site.label)
        if not number:
            warn_owner(site, size_of(self.sizes, site.party), "summary.sizes")
        stream = site.public_stream("summary rounds", site.party)
        mine = np.flatnonzero(draw_rounds(len(site.records), self.records, stream) == number)
        place, bid = find_best_bid(self.features(site.features[mine]), broadcast)
        self.chosen(site, int(mine[place]) if place >= 0 else -1)
        site.contribute(np.array([bid]))

    # What the plan says.

    def expectation(self, consortium: Consortium) -> str:
        budget, owners = self.budget(consortium), len(consortium.among(OWNER))
        noise = self.declared(consortium)["running"].opened_deviation(consortium) / self.records
        useless = ", so expect little more than records that are like the target one by one" if noise > 0.1 else ""
        number = expected_asks(owners, budget.each, self.missed)
        return (
            f"about {number:.3g} of {owners} owners are asked in a round; at the end the mean of the summary is known "
            f"to {noise:.2g} in each direction, of features of length 1{useless}"
        )

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        budget = self.budget(consortium)
        return (
            self.kernel_note,
            f"being asked tells one owner eps {budget.each:.3g} about a record of another, {budget.readers} that pool "
            f"what they saw {budget.asked}, once: a record bids in one round; the rest of the loss is that of the "
            "running sum",
            "the value of owners is their share of winning bids, for curator and consumer: an owner that is paid by it "
            "learns its share exactly, outside the guarantee",
        )

    def warnings(self, consortium: Consortium) -> tuple[str, ...]:
        return (
            "every broadcast of an auction carries noise: at epsilon 1 and 100 records it came closer to the consumer "
            'than a uniform sample on one of three datasets tried; selection = "one-shot" has less noise',
        )
