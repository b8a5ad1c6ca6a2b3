"""Summaries as published: multiplicative weights for means, greedy rounds, and an auction with coins by rank.

K. Sarpatwar, K. Shanmugam, V. S. Ganapavarapu, A. Jagmohan, R. Vaculin, Differentially Private Distributed Data
Summarization under Covariate Shift, NeurIPS 2019. Algorithm 3, by its lines:

    3      the consumer releases its mean of features by multiplicative weights                      (`wish`)
    in each round
    5      the curator broadcasts the mean of the summary so far, by multiplicative weights
    6      each owner bids with its best record                                                      (`bid`)
    7, 11  the curator asks rank i with probability e^(−ε(i−1)), and in any case an owner whose record was its choice
           τ times; the best of all records that the curator ever received joins the summary         (`sell`)

Algorithm 1 is `hashes`, Algorithm 2 `privacy.mechanisms.sarpatwar`. The constants are those of section 4
(`Summary.paper`). Two repairs are options: `bid_sign`, and `features` in pairs. With `deliver = "hashes"` the curator
receives hashes alone, as in the paper's section on a less trusted curator. The declared losses are the true ones
(`PublishedBudget`, proof.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from math import ceil, exp, expm1, log, log1p, pi, sqrt
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Interval
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
from comity.methods.summary.auction.market import (
    MAX_BID,
    HashForm,
    Market,
    Offer,
    Pool,
    PooledOffer,
    find_best_bid,
    rank_bids,
)
from comity.methods.summary.features import FeatureMap
from comity.methods.summary.protocol import CONSUMER, OWNER, AtLeastOne, find_consumer
from comity.methods.summary.published.hashes import PhasedCosines, public_cosines
from comity.privacy.accounting import Spent
from comity.privacy.loss import LOSSES, ZCDP, Approx, format_small, format_up
from comity.privacy.mechanisms import MeanWeights, RankCoins
from comity.privacy.mechanisms.sarpatwar import grid_mean, quantise

# What the published noise costs, as printed and in truth.
#
# Printed: k iterations of ε each are (ε', δ)-DP with ε' = sqrt(2k·ln(1/δ))·ε + kε(e^ε − 1) (Dwork, Rothblum and Vadhan
# 2010); the auction costs nothing. True cost (proof.md, 2 to 4):
#
#     an iteration          3εΔ, where a record moves each coordinate of the sum by Δ
#     consumer              Δ = 2: a record is replaced. Printed: ε
#     summary               Δ = 4: a replaced record changes two of the chosen ones. Printed: ε
#     auction               (ε_a, 1 − e^(−ε_a)) for each round and each owner that sees its bit

Iterations = AtLeastOne | Literal["d^1.5"]
Spacing = Annotated[float, Interval(gt=0, le=1)] | Literal["1/d"]
PrintedEpsilon = Positive | Literal["study"]


@dataclass(frozen=True)
class Constants:
    """What section 4 of the paper fixes, by its symbols.

    `epsilon_v`      ε of an iteration for the consumer's mean; "study": that for which the printed formula gives the
                     study's ε.
    `epsilon_first`  ε of an iteration for the first broadcast. It is of public seeds, so its noise protects nobody.
    `epsilon_l`      ε of all later iterations together: each has epsilon_l/√(records·t_sub); or "study", as above.
    `t_init`         iterations for the consumer's mean and for the first broadcast.
    `t_sub`          iterations in each round after the first.
    `eta`            the spacing of the grid on [−1, 1].
    """

    epsilon_v: PrintedEpsilon
    epsilon_first: Positive
    epsilon_l: PrintedEpsilon
    t_init: Iterations
    t_sub: AtLeastOne
    eta: Spacing

    def first_iterations(self, dimensions: int) -> int:
        return int(dimensions**1.5) if self.t_init == "d^1.5" else int(self.t_init)

    def steps(self, dimensions: int) -> int:
        """Points of the grid to either side of 0. Where 1/η is no whole number the grid is a little finer."""
        return dimensions if self.eta == "1/d" else ceil(1 / float(self.eta) - 1e-9)


@dataclass(frozen=True)
class PublishedBudget:
    """The noise of a study. `wish` and `means` are the printed ε of an iteration, for the consumer and for the summary,
    `wish_count` and `round_count` the numbers of iterations, and `readers` the number of owners that may pool their
    bits. `study` is the study's (ε, δ), and losses are given at its δ."""

    study: Approx
    dimensions: int
    rounds: int
    readers: int
    coins: RankCoins
    wish: float
    wish_count: int
    means: float
    round_count: int
    steps: int

    @classmethod
    def of(
        cls, consortium: Consortium, dimensions: int, rounds: int, auction_epsilon: float, constants: Constants
    ) -> PublishedBudget:
        loss = consortium.loss
        if not isinstance(loss, Approx) or loss.delta <= 0 or loss.epsilon <= 0:
            raise StudyError(
                f"summary.variant = published claims an epsilon at a delta for many iterations, found {loss}; set "
                "privacy.epsilon and privacy.delta above 0",
                key="privacy.delta",
            )
        epsilon, delta = float(loss.epsilon), float(loss.delta)
        first, each = constants.first_iterations(dimensions), constants.t_sub
        later = each * max(1, rounds - 1)
        wish, means = constants.epsilon_v, constants.epsilon_l
        return cls(
            loss,
            dimensions,
            rounds,
            max(1, consortium.colluders),
            RankCoins(epsilon=auction_epsilon),
            wish=iteration_epsilon(epsilon, delta, first) if isinstance(wish, str) else wish,
            wish_count=first,
            means=iteration_epsilon(epsilon, delta, later) if isinstance(means, str) else means / sqrt(rounds * each),
            round_count=each,
            steps=constants.steps(dimensions),
        )

    @property
    def delta(self) -> Decimal:
        return self.study.delta

    @property
    def claimed_wish(self) -> Approx:
        """What the paper claims for the consumer, by its formula at the study's δ."""
        return self._claim(self.wish, self.wish_count)

    @property
    def claimed_means(self) -> Approx:
        """What the paper claims for the owners. It counts iterations of p rounds."""
        return self._claim(self.means, self.round_count * max(1, self.rounds))

    def _claim(self, epsilon: float, count: int) -> Approx:
        return Approx(repr(printed_epsilon(epsilon, float(self.delta), count)), self.delta)

    @property
    def wished(self) -> MeanWeights:
        """The consumer's mean; one of its records may be replaced."""
        return self._weights(self.wish, self.wish_count, 2.0)

    @property
    def summarised(self) -> MeanWeights:
        """The mean of the summary so far, in one round. A replaced record may change two of its records."""
        return self._weights(self.means, self.round_count, 4.0)

    def _weights(self, epsilon: float, count: int, moved: float) -> MeanWeights:
        return MeanWeights(
            epsilon=epsilon, iterations=count, dimensions=self.dimensions, sensitivity=moved, steps=self.steps
        )

    @property
    def consumer(self) -> Approx:
        """The loss of the consumer's record at the study's δ."""
        return Approx(Spent.zero().add(self.wished.charged).epsilon_at(self.delta), self.delta)

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
        auction, delta = self.auction, self.delta
        means = Spent.zero().add(self.broadcasts).epsilon_at(delta)
        # The guarantee fails unless both hold.
        both_hold = (Decimal(1) - delta) * (Decimal(1) - auction.delta)
        return Approx(LOSSES.add(means, auction.epsilon), LOSSES.subtract(Decimal(1), both_hold))


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
Hash = Literal["printed", "paired"]


RANDOM_SEEDS = 150
"""Random hashes that start a hashed summary where no public records are given: as many as the paper's seeds."""


def bid_direction(bid: Bid, target: Floats, mean: Floats, number: int, held: int) -> Floats:
    """The direction of round `number` = l = 1, 2, … for a summary of `held` = q records, seeds included.

    Printed: max g_l·h − l/(l + 1)·g·h for the target g, which prefers records that are *unlike* the target and like the
    summary. The marginal gain of the objective is, up to a factor, g·h − q/(q + 1)·g_l·h (proof.md, 1).
    """
    if bid == "printed":
        return np.asarray(mean - number / (number + 1) * target, np.float64)
    return np.asarray(target - held / (held + 1) * mean, np.float64)


def weigh_seeds(
    sums: NDArray[np.int64], records: int, stream: Stream, *, epsilon: float, iterations: int, steps: int
) -> Floats:
    """The first broadcast, by the algorithm of `MeanWeights` with public randomness: two rows, means and λ."""
    truth, weights = sums / steps, np.zeros(len(sums))
    means, total = grid_mean(weights, steps), np.zeros(len(sums))
    uniform = stream.uniform((iterations, len(sums)))
    signed = stream.uniform(iterations) - 0.5
    for number in range(iterations):
        # Gumbel noise on the scores is the exponential mechanism; then a measurement with Laplace noise.
        scores = epsilon * np.abs(records * means - truth) - np.log(-np.log(uniform[number]))
        worst = int(np.argmax(scores))
        noise = -np.sign(signed[number]) * np.log(1 - 2 * abs(signed[number])) / epsilon
        weights[worst] += (truth[worst] + noise - records * means[worst]) / (2 * records)
        means[worst] = grid_mean(weights[worst : worst + 1], steps)[0]
        total += means
    return np.stack([total / iterations, weights])


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

    def attribution(self, target: Floats, spread: float) -> dict[str, Any]:
        """As for every pool, with the paper's value: an owner's is the sum of its winning bids, nothing where that is
        negative."""
        found = super().attribution(target, spread)
        values = np.maximum(found["bids"], 0.0)
        whole = values.sum()
        found["shares"] = values / whole if whole else np.full(len(values), 1 / len(values))
        return found


_SOLD, _CHOSEN = "summary.sold", "summary.chosen"


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedSummary(Market):
    """`records` records of all owners, bought one by one in an auction that is not private as claimed.

    Adversary    as claimed, any owner; in truth none for a small δ. The curator is trusted.
    Unit         a record, replaced: sizes are public.
    Learned      each owner: the broadcasts, and whether it was asked. Curator and consumer: the chosen records.
    Sensitivity  2 on each coordinate of the consumer's sum, 4 of the summary's, 1 for ranks (proof.md, 2 to 4).

    `seeds` are the encoded public records that the summary starts with. Where hashes are handed over, as many random
    hashes stand for them: the curator could compute the seed of the hashes from records whose hashes it knows. A record
    that was its owner's choice in `tau` rounds is asked for whatever its rank. `auction_epsilon` is the ε of the coins.
    """

    variant: ClassVar[str] = "published"

    seeds: Floats = field(repr=False)
    bid_sign: Bid
    hash_features: Hash
    tau: AtLeastOne
    auction_epsilon: Positive
    constants: Constants

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hashed:
            return
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
        return PublishedBudget.of(consortium, self.dimensions, self.records, self.auction_epsilon, self.constants)

    @property
    def features(self) -> FeatureMap:
        if self.hash_features == "paired":
            return super().features
        return public_cosines(self.columns, self.dimensions, self.gamma)

    def draw_features(self, seed: bytes) -> FeatureMap:
        if self.hash_features == "paired":
            return super().draw_features(seed)
        return PhasedCosines.draw(self.columns, self.dimensions, self.gamma, Stream(seed))

    @property
    def hash_form(self) -> HashForm:
        return "shifted" if self.hash_features == "paired" else "cosines"

    @property
    def shrink(self) -> float:
        # Cosines alone are up to √2 long.
        return 1.0 if self.hash_features == "paired" else 0.5

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
        scale, steps = sqrt(2 / self.dimensions), self.constants.steps(self.dimensions)
        self.deal_hash_seed(parties)
        got = parties.ask(self.wish, to=[find_consumer(consortium)])
        target = got[find_consumer(consortium)]["wish"][0] * scale
        pool = OpenPool(consortium.among(OWNER), self.curator_map, self.labels)
        seeds = self._seed_features(Stream.public(parties.study, parties.run, "summary seeds"))
        held, sums = len(seeds), quantise(seeds / scale, steps).sum(axis=0)
        means, weights = weigh_seeds(
            sums,
            held,
            Stream.public(parties.study, parties.run, "summary opening"),
            epsilon=self.constants.epsilon_first,
            iterations=self.constants.first_iterations(self.dimensions),
            steps=steps,
        )
        for number in range(self.records):
            direction = bid_direction(self.bid_sign, target, means * scale, number + 1, held)
            added = pool.take(self._hold_round(parties, number, direction), direction)
            if added is not None:
                sums, held = sums + quantise(added / scale, steps), held + 1
            if number + 1 < self.records:
                means, weights = parties.compute("means", (sums, weights, held))
        return {"summary": pool.summary(self.records), "attribution": pool.attribution(target, 0.0)}

    def _seed_features(self, stream: Stream) -> Floats:
        """The features of the seeds; random hashes where the curator has no map."""
        return self._random_hashes(stream) if self.hashed else self.features(self.seeds)

    def _random_hashes(self, stream: Stream) -> Floats:
        count = len(self.seeds) or RANDOM_SEEDS
        hashes = np.cos(2 * pi * stream.uniform((count, self.dimensions))) * sqrt(2 / self.dimensions)
        return np.asarray(hashes, np.float64)

    def _hold_round(self, parties: Parties, number: int, direction: Floats) -> dict[str, Offer]:
        """The offers of owners whose coin says so, and of those whose choice has waited `tau` rounds."""
        owners = parties.consortium.among(OWNER)
        sent, bids = self.collect_bids(parties, number, direction)
        due = np.array([owner in sent and sent[owner][1] > 0 for owner in owners])
        bits = parties.compute("asked", rank_bids(bids, owners))
        return self.buy_offers(parties, number, direction, bids, np.where(due, 1, bits).astype("<i8"))

    # What a site does.

    @step(sends="wish")
    def wish(self, site: Site) -> None:
        self.warn_owner(site)
        size, features = size_of(self.sizes, site.party), self.map_at(site)
        scale, steps = sqrt(2 / self.dimensions), self.constants.steps(self.dimensions)

        def quantised(rows: Floats) -> Floats:
            return np.asarray(quantise(features(rows) / scale, steps).sum(axis=0), np.float64)

        sums = site.total(lambda rows: quantised(rows.features))
        # The sums of a party with more records than declared are clipped to what the declared ones could reach.
        limit = size * steps
        site.compute((np.clip(sums, -limit, limit).astype(np.int64), np.zeros(self.dimensions), size))

    @step(sends="bids")
    def bid(self, site: Site, broadcast: Floats) -> None:
        """Bid with the best of the records that were not sold; mark it if it was this owner's choice τ times."""
        if not int(site.label):
            self.warn_owner(site)
        sold = set(site.kept(_SOLD, []))
        mine = np.array([place for place in range(len(site.records)) if place not in sold], np.int64)
        place, bid = find_best_bid(self.map_at(site)(site.features[mine]), broadcast, self.shrink)
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
            f"{(len(self.seeds) or RANDOM_SEEDS) + self.records}"
        )

    def true_losses(self, consortium: Consortium) -> tuple[TrueLoss, ...]:
        """published/proof.md, 2 to 4."""
        budget = self.budget(consortium)
        means = Approx(Spent.zero().add(budget.broadcasts).epsilon_at(budget.delta), budget.delta)
        return (
            TrueLoss(
                about="a record of the consumer",
                to="the curator and the owners",
                claimed=str(budget.claimed_wish),
                true=f"at most {budget.consumer}",
                why="an iteration of the weights costs six times the printed epsilon",
            ),
            TrueLoss(
                about="a record of an owner",
                to="each other owner",
                claimed=str(budget.claimed_means),
                true=f"infinite at delta {format_small(budget.delta)}",
                why="an owner that is not asked knows that its bid is not the best: an event of probability 0 or "
                f"{float(budget.coins.charged.delta):.3g} in a round; all means of the summary cost it {means}",
            ),
            TrueLoss(
                about="a record of an owner that is asked for",
                to="the curator and the consumer",
                claimed="that only distances are learned" if self.hashed else "nothing, since they receive it",
                true=INFINITE,
                why="distances, and so the record among known ones, follow from hashes"
                if self.hashed
                else "it leaves as it is",
            ),
        )

    def notes(self, consortium: Consortium) -> tuple[str, ...]:
        budget = self.budget(consortium)
        hashed = "random hashes start the summary, in place of public records" if self.hashed else ""
        return (
            self.describe_kernel(self.dimensions),
            *self.describe_hashes,
            *filter(None, [hashed]),
            f"an iteration for the consumer is printed as eps {budget.wish:.3g} and costs six times that, one for the "
            f"summary is printed as {budget.means:.3g} and costs twelve times that; {budget.wish_count} iterations are "
            f"claimed to cost {budget.claimed_wish}, {budget.round_count} in each of {self.rounds_in_words} "
            f"{budget.claimed_means}",
            f"all means of the summary cost an owner {budget.broadcasts}, the auction {budget.auction}",
        )

    @property
    def rounds_in_words(self) -> str:
        return "1 round" if self.records == 1 else f"{self.records} rounds"

    def warnings(self, consortium: Consortium) -> tuple[str, ...]:
        budget, found = self.budget(consortium), []
        claims = {"epsilon_v": budget.claimed_wish, "epsilon_l": budget.claimed_means}
        for key, claim in claims.items():
            if claim.epsilon > budget.study.epsilon and getattr(self.constants, key) != "study":
                found.append(
                    f"the paper's constants claim {claim}, more than the study's {budget.study}; summary.{key} = "
                    '"study" takes the noise that the paper prints for the study\'s epsilon'
                )
        return (
            *found,
            "with the paper's constants the published summary was closer to the consumer's records than a uniform "
            "sample in one of six cases tried (three numbers of records on two datasets); use the default variant with "
            'selection = "one-shot" for real work',
        )


def _state_claim(budget: PublishedBudget) -> str:
    alone = float(budget.coins.charged.delta)
    return (
        f"not private as claimed: the paper claims {budget.claimed_wish} for the consumer and {budget.claimed_means} "
        "for owners. An owner that is not asked knows that its bid is not the best: no delta below "
        f"{alone:.3g} holds for one of the {budget.rounds} rounds. An iteration of the consumer's weights costs six "
        f"times what is printed, eps {format_up(budget.consumer.epsilon, decimals=2)} in all; one of the summary's "
        "costs an owner twelve times"
    )
