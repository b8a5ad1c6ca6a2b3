"""Summaries as published: weights of means, greedy rounds, and an auction with coins by rank.

K. Sarpatwar, K. Shanmugam, V. S. Ganapavarapu, A. Jagmohan, R. Vaculin, Differentially Private Distributed Data
Summarization under Covariate Shift, NeurIPS 2019:

    3      the consumer releases its mean of features by multiplicative weights                      (`wish`)
    in each round
    5      the curator broadcasts the mean of the summary so far, by multiplicative weights
    6      each owner bids with its best record                                                      (`bid`)
    7, 11  the curator asks rank i with probability e^(−ε(i−1)), and for a record that was an owner's
           choice τ times anyway; the best of all that it was ever sent joins the summary            (`sell`)

What is not as printed: features are pairs of cosine and sine; choices are by noisy max with the noise of the same loss;
the bid may have its sign corrected (`bid_sign`); the losses that are declared are the true ones (`budget`, proof.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, sqrt
from typing import Any

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
from comity.methods.declared_records import tell_owner
from comity.methods.summary.auction import bids
from comity.methods.summary.auction.market import Market
from comity.methods.summary.auction.pool import Offer
from comity.methods.summary.constraints import AtLeastOne
from comity.methods.summary.published.budget import PublishedBudget
from comity.methods.summary.published.direction import Bid, direction
from comity.methods.summary.published.opening import opening
from comity.methods.summary.published.pool import OpenPool
from comity.methods.summary.sizes import CONSUMER, OWNER, check_terms, consumer_of
from comity.privacy.accounting import Spent
from comity.privacy.loss import Approx, shown, shown_small
from comity.privacy.mechanisms.sarpatwar import STEPS, quantise

Floats = NDArray[np.float64]

_SOLD, _CHOSEN = "summary.sold", "summary.chosen"


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedSummary(Market):
    """`records` records of all owners, bought one by one in an auction that is not private as claimed.

    Adversary    as claimed, any owner; in truth none for a small δ. The curator is trusted.
    Unit         a record, replaced: sizes are public.
    Learned      owners: the broadcasts, and each whether it was asked. Curator and consumer: the chosen records.
    Sensitivity  2 on each coordinate of the consumer's sum, 4 of the summary's, 1 for ranks (proof.md, 2 to 4).

    `seeds` are public records that the summary begins with, encoded. `tau` is after how many rounds as its owner's
    choice a record is asked for whatever its rank, `auction_epsilon` the ε of the coins.
    """

    seeds: Floats = field(default_factory=lambda: np.zeros((0, 0)), repr=False)
    bid_sign: Bid = "corrected"
    tau: AtLeastOne = 5
    auction_epsilon: Positive = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seeds.ndim != 2 or not len(self.seeds) or self.seeds.shape[1] != self.columns:
            raise StudyError(
                "summary.variant = published begins with public records and found none of the schema's width; name a "
                "file of them: summary.auxiliary",
                key="summary.auxiliary",
            )

    # What the study fixes.

    @property
    def title(self) -> str:
        return f"summary (published auction, bids as {self.bid_sign}, {self.records} rounds)"

    def budget(self, who: Consortium) -> PublishedBudget:
        return PublishedBudget.of(who, self.dimensions, self.records, self.auction_epsilon)

    # What leaves.

    def declare(self, who: Consortium) -> Declaration:
        check_terms(who, self.sizes, self.records)
        budget, width = self.budget(who), self.dimensions
        return Declaration(
            (
                Release(
                    name="wish",
                    source=CONSUMER,
                    to=COORDINATOR,
                    protection=Computed(budget.wished),
                    form=Array((2, width)),
                ),
                *self.announced(
                    who,
                    loss=budget.owner,
                    numbers=2,
                    # A bid and a mark: the bound of bids never cuts the pair.
                    limit=2 * bids.LIMIT,
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
                *self.traded(who, "wish", "means"),
            ),
            adversary="as claimed, each owner alone; in truth none for a small delta. The curator is trusted and sees "
            "every bid, and towards curator and consumer there is no differential privacy for the records that an "
            "owner is asked for",
            claim=_claim(budget),
        )

    # What the curator does.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        who = parties.consortium
        scale = sqrt(2 / self.dimensions)
        got = parties.ask(self.wish, to=[consumer_of(who)])
        target = got[consumer_of(who)]["wish"][0] * scale
        pool = OpenPool(who.among(OWNER), self.features, self.labels)
        held, sums = len(self.seeds), self._quantised(self.seeds).sum(axis=0)
        means, weights = opening(sums, held, Stream.public(parties.study, parties.run, "summary opening"))
        for number in range(self.records):
            aim = direction(self.bid_sign, target, means * scale, number + 1, held)
            taken = pool.take(self._round(parties, number, aim), aim)
            if taken is not None:
                sums, held = sums + quantise(taken / scale), held + 1
            if number + 1 < self.records:
                means, weights = parties.compute("means", (sums, weights, held))
        return {"summary": pool.summary(self.records), "attribution": pool.attribution(target, 0.0)}

    def _round(self, parties: Parties, number: int, aim: Floats) -> dict[str, Offer]:
        """What those offer whose coins fall so, and those whose choice has waited long enough."""
        owners = parties.consortium.among(OWNER)
        sent, made = self.offered(parties, number, aim)
        due = np.array([owner in sent and sent[owner][1] > 0 for owner in owners])
        bits = parties.compute("asked", bids.ranks(made, owners))
        return self.bought(parties, number, aim, made, np.where(due, 1, bits).astype("<i8"))

    def _quantised(self, rows: Floats) -> NDArray[np.int64]:
        """Features of rows, entry by entry in [−1, 1], on the grid of the weights."""
        return quantise(self.features(rows) / sqrt(2 / self.dimensions))

    # What a site does.

    @step(sends="wish")
    def wish(self, site: Site) -> None:
        size = self.sizes[site.party]
        tell_owner(site, size, "summary.sizes")
        sums = site.total(lambda rows: self._quantised(rows.features).sum(axis=0).astype(np.float64))
        # A file that holds more than the study says is cut at what its records could fill, entry by entry.
        limit = size * STEPS
        site.compute((np.clip(sums, -limit, limit).astype(np.int64), np.zeros(self.dimensions), size))

    @step(sends="bids")
    def bid(self, site: Site, broadcast: Floats) -> None:
        """The best of the records that were not sold; marked when it was this owner's choice τ times."""
        if not int(site.label):
            tell_owner(site, self.sizes[site.party], "summary.sizes")
        sold = set(site.kept(_SOLD, []))
        mine = np.array([place for place in range(len(site.records)) if place not in sold], np.int64)
        place, bid = bids.best(self.features(site.features[mine]), broadcast)
        if place < 0:
            self.chosen(site, -1)
            site.contribute(np.array([bid, 0.0]))
            return
        chosen = int(mine[place])
        times = dict(site.kept(_CHOSEN, {}))
        times[str(chosen)] = times.get(str(chosen), 0) + 1
        site.keep(_CHOSEN, times)
        self.chosen(site, chosen)
        site.contribute(np.array([bid, float(times[str(chosen)] >= self.tau)]))

    def sold(self, site: Site, place: int) -> None:
        site.keep(_SOLD, [*site.kept(_SOLD, []), place])

    # What the plan says.

    @property
    def charged_once(self) -> str:
        return "no small delta holds for one of them at one owner, and none for a person with several"

    def expectation(self, who: Consortium) -> str:
        budget, owners = self.budget(who), len(who.among(OWNER))
        asked = sum(exp(-self.auction_epsilon * place) for place in range(owners))
        return (
            f"about {asked:.3g} of {owners} owners are asked in a round, and more whose choice has waited {self.tau} "
            f"rounds; a measurement of the consumer's sum has noise of deviation {sqrt(2) / budget.wish:.3g} for "
            f"{self.sizes[consumer_of(who)]} records, one of the summary's {sqrt(2) / budget.means:.3g} for at most "
            f"{len(self.seeds) + self.records}"
        )

    def true_losses(self, who: Consortium) -> tuple[TrueLoss, ...]:
        """published/proof.md, 2 to 4."""
        budget = self.budget(who)
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
                true=f"infinite at delta {shown_small(delta)}",
                why="who is not asked knows that its bid is not the best, which has probability 0 or "
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

    def notes(self, who: Consortium) -> tuple[str, ...]:
        budget = self.budget(who)
        return (
            self.kernel_note,
            f"the noise is as printed for {budget.claimed}: eps {budget.wish:.3g} an iteration for the consumer, which "
            f"costs six times that, and {budget.means:.3g} for the summary, which costs twelve times that",
            f"all means of the summary cost an owner {budget.broadcasts}, the auction {budget.auction}",
        )

    def warnings(self, who: Consortium) -> tuple[str, ...]:
        return (
            "with the noise of epsilon 1 the published summary was further from the consumer's records than a uniform "
            'sample on all three datasets tried; use selection = "one-shot" of the default variant to work with',
        )


def _claim(budget: PublishedBudget) -> str:
    alone = float(budget.coins.charged.delta)
    consumer = Spent.zero().add(budget.wished.charged).epsilon_at(budget.claimed.delta)
    return (
        f"not private as claimed: {budget.claimed} is claimed on either side. Whoever is not asked knows that its bid "
        f"is not the best: no delta below {alone:.3g} holds for a round of the auction, and there are "
        f"{budget.rounds} of them. An iteration of the weights costs six times what is printed, so that the consumer "
        f"loses eps {shown(consumer, decimals=2)}; an owner's costs twelve times"
    )
