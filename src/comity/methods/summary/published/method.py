"""Summaries as published: multiplicative weights for means, greedy rounds, and an auction with coins by rank.

K. Sarpatwar, K. Shanmugam, V. S. Ganapavarapu, A. Jagmohan, R. Vaculin, Differentially Private Distributed Data
Summarization under Covariate Shift, NeurIPS 2019:

    3      the consumer releases its mean of features by multiplicative weights                      (`wish`)
    in each round
    5      the curator broadcasts the mean of the summary so far, by multiplicative weights
    6      each owner bids with its best record                                                      (`bid`)
    7, 11  the curator asks rank i with probability e^(−ε(i−1)), and in any case an owner whose record was its choice
           τ times; the best of all records that the curator ever received joins the summary         (`sell`)

Not as printed: features are pairs of cosine and sine; choices are made by noisy max instead of the exponential
mechanism, at the same loss; the sign of the bid may be corrected (`bid_sign`); the declared losses are the true ones
(`PublishedBudget`, proof.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from math import exp, expm1, log, log1p, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.errors import StudyError
from comity.federation.constraints import Positive
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.declaration import INFINITE, Declaration, Release, TrueLoss
from comity.federation.declare.protection import Computed, Curated
from comity.federation.declare.release import Array
from comity.federation.owner.site import Site
from comity.federation.protocol import step
from comity.methods.declared_records import size_of
from comity.methods.summary.auction.market import MAX_BID, Market, Offer, Pool, PooledOffer, find_best_bid, rank_bids
from comity.methods.summary.protocol import CONSUMER, OWNER, AtLeastOne, find_consumer
from comity.privacy.accounting import Spent
from comity.privacy.loss import LOSSES, ZCDP, Approx, format_small, format_up
from comity.privacy.mechanisms import MeanWeights, RankCoins
from comity.privacy.mechanisms.sarpatwar import STEPS, grid_mean, quantise

# What the published noise costs, as printed and in truth.
#
# Printed: k iterations of ε each are (ε', δ)-DP with ε' = sqrt(2k·ln(1/δ))·ε + kε(e^ε − 1) (Dwork, Rothblum and Vadhan
# 2010), with k = d^1.5 for the consumer and 5 in each round for the summary; the auction costs nothing. The noise below
# is that of the study's (ε', δ) by this formula, on both sides. Its true cost (proof.md, 2 to 4):
#
#     an iteration          3εΔ, where a record moves each coordinate of the sum by Δ
#     consumer              Δ = 2: a record is replaced. Printed: ε
#     summary               Δ = 4: a replaced record changes two of the chosen ones. Printed: ε
#     auction               (ε_a, 1 − e^(−ε_a)) for each round and each owner that sees its bit

ROUND_ITERATIONS = 5
"""Iterations in each round after the first."""
OPENING_EPSILON = 0.05
"""Printed ε of an iteration on the seeds. They are public, so its noise protects nobody; it is part of the method."""


@dataclass(frozen=True)
class PublishedBudget:
    """The noise of a study. `wish` and `means` are the printed ε of an iteration, for the consumer and for the summary;
    `readers` is the number of owners that may pool their bits."""

    claimed: Approx
    dimensions: int
    rounds: int
    readers: int
    coins: RankCoins
    wish: float
    means: float

    @classmethod
    def of(cls, consortium: Consortium, dimensions: int, rounds: int, auction_epsilon: float) -> PublishedBudget:
        loss = consortium.loss
        if not isinstance(loss, Approx) or loss.delta <= 0 or loss.epsilon <= 0:
            raise StudyError(
                f"summary.variant = published divides an epsilon and a delta over many iterations, found {loss}; set "
                "privacy.epsilon and privacy.delta above 0",
                key="privacy.delta",
            )
        epsilon, delta = float(loss.epsilon), float(loss.delta)
        later = ROUND_ITERATIONS * max(1, rounds - 1)
        return cls(
            loss,
            dimensions,
            rounds,
            max(1, consortium.colluders),
            RankCoins(epsilon=auction_epsilon),
            wish=iteration_epsilon(epsilon, delta, count_iterations(dimensions)),
            means=iteration_epsilon(epsilon, delta, later),
        )

    @property
    def wished(self) -> MeanWeights:
        """The consumer's mean; one of its records may be replaced."""
        count = count_iterations(self.dimensions)
        return MeanWeights(epsilon=self.wish, iterations=count, dimensions=self.dimensions, sensitivity=2.0)

    @property
    def summarised(self) -> MeanWeights:
        """The mean of the summary so far, in one round. A replaced record may change two of its records."""
        return MeanWeights(epsilon=self.means, iterations=ROUND_ITERATIONS, dimensions=self.dimensions, sensitivity=4.0)

    @property
    def broadcasts(self) -> ZCDP:
        """The loss of a record by all means of the summary."""
        loss = self.summarised.charged
        assert isinstance(loss, ZCDP)
        return loss * (self.rounds - 1)

    @property
    def auction(self) -> Approx:
        """The loss of a record by the bits that `readers` owners see in all rounds."""
        return self.coins.charged_for(self.rounds * self.readers)

    @property
    def owner(self) -> Approx:
        """The loss of an owner's record: the means at the study's δ, composed with the auction."""
        auction, delta = self.auction, self.claimed.delta
        means = Spent.zero().add(self.broadcasts).epsilon_at(delta)
        # The guarantee fails unless both hold.
        both_hold = (Decimal(1) - delta) * (Decimal(1) - auction.delta)
        return Approx(LOSSES.add(means, auction.epsilon), LOSSES.subtract(Decimal(1), both_hold))


def count_iterations(dimensions: int) -> int:
    """d^1.5 iterations, for the consumer's mean and for the first broadcast."""
    return int(dimensions**1.5)


def printed_epsilon(epsilon: float, delta: float, count: int) -> float:
    """ε' of `count` iterations by the paper's formula."""
    return sqrt(2 * count * log(1 / delta)) * epsilon + count * epsilon * expm1(epsilon)


def iteration_epsilon(whole: float, delta: float, count: int) -> float:
    """The ε of an iteration for which `printed_epsilon` gives `whole`."""
    # One iteration with more would already exceed `whole`.
    low, high = 0.0, min(whole, 1 + log1p(whole))
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if printed_epsilon(middle, delta, count) <= whole else (low, middle)
    return low


Floats = NDArray[np.float64]
Bid = Literal["printed", "corrected"]


def bid_direction(bid: Bid, target: Floats, mean: Floats, number: int, held: int) -> Floats:
    """The direction of round `number` = l = 1, 2, … for a summary of `held` = q records, seeds included.

    Printed: max g_l·h − l/(l + 1)·g·h for the target g, which prefers records that are *unlike* the target and like the
    summary. The marginal gain of the objective is, up to a factor, g·h − q/(q + 1)·g_l·h (proof.md, 1).
    """
    if bid == "printed":
        return np.asarray(mean - number / (number + 1) * target, np.float64)
    return np.asarray(target - held / (held + 1) * mean, np.float64)


def weigh_seeds(sums: NDArray[np.int64], records: int, stream: Stream) -> Floats:
    """The first broadcast, by the algorithm of `MeanWeights` with public randomness: two rows, means and λ."""
    truth, weights = sums / STEPS, np.zeros(len(sums))
    means, total, count = grid_mean(weights), np.zeros(len(sums)), count_iterations(len(sums))
    uniform = stream.uniform((count, len(sums)))
    signed = stream.uniform(count) - 0.5
    for number in range(count):
        # Exponential noise on the scores, then a measurement with Laplace noise, both of scale 1/ε.
        scores = np.abs(records * means - truth) - np.log(uniform[number]) / OPENING_EPSILON
        worst = int(np.argmax(scores))
        noise = -np.sign(signed[number]) * np.log(1 - 2 * abs(signed[number])) / OPENING_EPSILON
        weights[worst] += (truth[worst] + noise - records * means[worst]) / (2 * records)
        means[worst] = grid_mean(weights[worst : worst + 1])[0]
        total += means
    return np.stack([total / count, weights])


class OpenPool(Pool):
    """A pool in which offers of all rounds compete: the best along the present direction wins."""

    def take(self, offers: Mapping[str, Offer], direction: Floats) -> Floats | None:
        """End a round. Return the features of the record that joins the summary, if there is one."""
        places = {owner: place for place, owner in enumerate(self._owners)}
        self.left_over += [PooledOffer(places[owner], offer, 0.0) for owner, offer in offers.items()]
        if not self.left_over:
            return None
        features = self._features(np.array([one.offer.row for one in self.left_over]))
        best = int(np.argmax(features @ direction))
        winner = self.left_over.pop(best)
        self.winners.append(PooledOffer(winner.owner, winner.offer, float(features[best] @ direction)))
        self.sum = self.sum + features[best]
        return np.asarray(features[best], np.float64)


_SOLD, _CHOSEN = "summary.sold", "summary.chosen"


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedSummary(Market):
    """`records` records of all owners, bought one by one in an auction that is not private as claimed.

    Adversary    as claimed, any owner; in truth none for a small δ. The curator is trusted.
    Unit         a record, replaced: sizes are public.
    Learned      each owner: the broadcasts, and whether it was asked. Curator and consumer: the chosen records.
    Sensitivity  2 on each coordinate of the consumer's sum, 4 of the summary's, 1 for ranks (proof.md, 2 to 4).

    `seeds` are the encoded public records that the summary starts with. A record that was its owner's choice in `tau`
    rounds is asked for whatever its rank. `auction_epsilon` is the ε of the coins.
    """

    seeds: Floats = field(repr=False)
    bid_sign: Bid
    tau: AtLeastOne
    auction_epsilon: Positive

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seeds.ndim != 2 or not len(self.seeds) or self.seeds.shape[1] != self.columns:
            raise StudyError(
                "summary.variant = published starts with public records, and found none of the schema's width; name a "
                "file of them: summary.auxiliary",
                key="summary.auxiliary",
            )

    # What the study fixes.

    @property
    def title(self) -> str:
        return f"summary (published auction, bids as {self.bid_sign}, {self.records} rounds)"

    def budget(self, consortium: Consortium) -> PublishedBudget:
        return PublishedBudget.of(consortium, self.dimensions, self.records, self.auction_epsilon)

    # What leaves.

    def declare(self, consortium: Consortium) -> Declaration:
        self.check_terms(consortium, self.records)
        budget, width = self.budget(consortium), self.dimensions
        return Declaration(
            (
                Release(
                    name="wish",
                    source=CONSUMER,
                    to=COORDINATOR,
                    protection=Computed(budget.wished),
                    form=Array((2, width)),
                ),
                *self.declare_bidding(
                    consortium,
                    loss=budget.owner,
                    numbers=2,
                    # A bid and a mark: this bound never clips the pair.
                    limit=2 * MAX_BID,
                    asking=budget.coins,
                    broadcast=Release(
                        name="means",
                        source=COORDINATOR,
                        to=COORDINATOR,
                        protection=Curated(budget.summarised, of="bids"),
                        form=Array((2, width)),
                        times=max(1, self.records - 1),
                    ),
                ),
                *self.declare_trade(consortium, "wish", "means"),
            ),
            adversary="as claimed, each owner alone; in truth none for a small delta. The curator is trusted and sees "
            "every bid, and towards curator and consumer there is no differential privacy for the records that an "
            "owner is asked for",
            claim=_state_claim(budget),
        )

    # What the curator does.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        consortium = parties.consortium
        scale = sqrt(2 / self.dimensions)
        got = parties.ask(self.wish, to=[find_consumer(consortium)])
        target = got[find_consumer(consortium)]["wish"][0] * scale
        pool = OpenPool(consortium.among(OWNER), self.features, self.labels)
        held, sums = len(self.seeds), self._quantise(self.seeds).sum(axis=0)
        means, weights = weigh_seeds(sums, held, Stream.public(parties.study, parties.run, "summary opening"))
        for number in range(self.records):
            direction = bid_direction(self.bid_sign, target, means * scale, number + 1, held)
            added = pool.take(self._hold_round(parties, number, direction), direction)
            if added is not None:
                sums, held = sums + quantise(added / scale), held + 1
            if number + 1 < self.records:
                means, weights = parties.compute("means", (sums, weights, held))
        return {"summary": pool.summary(self.records), "attribution": pool.attribution(target, 0.0)}

    def _hold_round(self, parties: Parties, number: int, direction: Floats) -> dict[str, Offer]:
        """The offers of owners whose coin says so, and of those whose choice has waited `tau` rounds."""
        owners = parties.consortium.among(OWNER)
        sent, bids = self.collect_bids(parties, number, direction)
        due = np.array([owner in sent and sent[owner][1] > 0 for owner in owners])
        bits = parties.compute("asked", rank_bids(bids, owners))
        return self.buy_offers(parties, number, direction, bids, np.where(due, 1, bits).astype("<i8"))

    def _quantise(self, rows: Floats) -> NDArray[np.int64]:
        """Features of rows, each entry in [−1, 1], on the grid of the weights."""
        return quantise(self.features(rows) / sqrt(2 / self.dimensions))

    # What a site does.

    @step(sends="wish")
    def wish(self, site: Site) -> None:
        self.warn_owner(site)
        size = size_of(self.sizes, site.party)
        sums = site.total(lambda rows: self._quantise(rows.features).sum(axis=0).astype(np.float64))
        # The sums of a party with more records than declared are clipped to what the declared ones could reach.
        limit = size * STEPS
        site.compute((np.clip(sums, -limit, limit).astype(np.int64), np.zeros(self.dimensions), size))

    @step(sends="bids")
    def bid(self, site: Site, broadcast: Floats) -> None:
        """Bid with the best of the records that were not sold; mark it if it was this owner's choice τ times."""
        if not int(site.label):
            self.warn_owner(site)
        sold = set(site.kept(_SOLD, []))
        mine = np.array([place for place in range(len(site.records)) if place not in sold], np.int64)
        place, bid = find_best_bid(self.features(site.features[mine]), broadcast)
        if place < 0:
            self.keep_choice(site, -1)
            site.contribute(np.array([bid, 0.0]))
            return
        chosen = int(mine[place])
        times = dict(site.kept(_CHOSEN, {}))
        times[str(chosen)] = times.get(str(chosen), 0) + 1
        site.keep(_CHOSEN, times)
        self.keep_choice(site, chosen)
        site.contribute(np.array([bid, float(times[str(chosen)] >= self.tau)]))

    def note_sale(self, site: Site, place: int) -> None:
        site.keep(_SOLD, [*site.kept(_SOLD, []), place])

    # What the plan says.

    @property
    def charged_once(self) -> str:
        return "no small delta holds for one of them at one owner, and none for a person with several"

    def expectation(self, consortium: Consortium) -> str:
        budget, owners = self.budget(consortium), len(consortium.among(OWNER))
        asked = sum(exp(-self.auction_epsilon * place) for place in range(owners))
        return (
            f"about {asked:.3g} of {owners} owners are asked in a round, plus those whose choice has waited {self.tau} "
            f"rounds; noise in the consumer's sum has deviation {sqrt(2) / budget.wish:.3g} for "
            f"{self.count_wished(consortium)} records, in the summary's {sqrt(2) / budget.means:.3g} for at most "
            f"{len(self.seeds) + self.records}"
        )

    def true_losses(self, consortium: Consortium) -> tuple[TrueLoss, ...]:
        """published/proof.md, 2 to 4."""
        budget = self.budget(consortium)
        claimed, delta = str(budget.claimed), budget.claimed.delta
        consumer, means = (
            Approx(Spent.zero().add(loss).epsilon_at(delta), delta)
            for loss in (budget.wished.charged, budget.broadcasts)
        )
        return (
            TrueLoss(
                about="a record of the consumer",
                to="the curator and the owners",
                claimed=claimed,
                true=f"at most {consumer}",
                why="an iteration of the weights costs six times the printed epsilon",
            ),
            TrueLoss(
                about="a record of an owner",
                to="each other owner",
                claimed=claimed,
                true=f"infinite at delta {format_small(delta)}",
                why="an owner that is not asked knows that its bid is not the best: an event of probability 0 or "
                f"{float(budget.coins.charged.delta):.3g} in a round; all means of the summary cost it {means}",
            ),
            TrueLoss(
                about="a record of an owner that is asked for",
                to="the curator and the consumer",
                claimed="nothing, since they receive it",
                true=INFINITE,
                why="it leaves as it is",
            ),
        )

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        budget = self.budget(consortium)
        return (
            self.describe_kernel(self.dimensions),
            f"the noise is as printed for {budget.claimed}: an iteration for the consumer is printed as eps "
            f"{budget.wish:.3g} and costs six times that, one for the summary is printed as {budget.means:.3g} and "
            "costs twelve times that",
            f"all means of the summary cost an owner {budget.broadcasts}, the auction {budget.auction}",
        )

    def warnings(self, consortium: Consortium) -> tuple[str, ...]:
        return (
            "with the noise of epsilon 1 the published summary was further from the consumer's records than a uniform "
            'sample on all three datasets tried; use the default variant with selection = "one-shot" for real work',
        )


def _state_claim(budget: PublishedBudget) -> str:
    alone = float(budget.coins.charged.delta)
    consumer = Spent.zero().add(budget.wished.charged).epsilon_at(budget.claimed.delta)
    return (
        f"not private as claimed: the paper claims {budget.claimed} for owners and for the consumer. An owner that is "
        f"not asked knows that its bid is not the best: no delta below {alone:.3g} holds for one of the "
        f"{budget.rounds} rounds. An iteration of the consumer's weights costs six times what is printed, eps "
        f"{format_up(consumer, decimals=2)} in all; one of the summary's costs an owner twelve times"
    )
