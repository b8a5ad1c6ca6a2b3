"""Summaries by auction, corrected: owners bid, a trusted curator asks few of them and adds one record in each round.

After K. Sarpatwar et al., Differentially Private Distributed Data Summarization under Covariate Shift, NeurIPS 2019,
with what its proof lacks (proof.md):

    1  the consumer releases a noisy mean of features                                               (`wish`)
    in each round
    2  each owner bids with its best record among those of the round, along the broadcast           (`bid`)
    3  the curator asks who has a small noisy rank; the best of what it gets joins the summary      (`sell`)
    4  it broadcasts along which direction to bid next, from the noisy running sum

A record bids in one round, whoever is asked is decided by a noisy rank, nothing of a round is left over for the next,
and bids follow from the broadcast alone. Seeds have no part in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Opened, RecordSum
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.declaration import DISCLOSING, Declaration, Release
from comity.federation.declare.protection import Noised, Perturbed
from comity.federation.declare.release import Array
from comity.federation.owner.site import Site
from comity.federation.protocol import step
from comity.methods.declared_records import tell_owner
from comity.methods.summary.auction import asking, bids
from comity.methods.summary.auction.budget import AuctionBudget
from comity.methods.summary.auction.direction import direction
from comity.methods.summary.auction.market import Market
from comity.methods.summary.auction.pool import Offer, Pool
from comity.methods.summary.auction.rounds import rounds_of
from comity.methods.summary.features import LENGTH
from comity.methods.summary.sizes import CONSUMER, HEADROOM, OWNER, check_terms, consumer_of
from comity.privacy.mechanisms import Gaussian, PrefixSums

Floats = NDArray[np.float64]


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

    def budget(self, who: Consortium) -> AuctionBudget:
        return AuctionBudget.of(who, self.ask_share)

    def running(self, who: Consortium) -> PrefixSums:
        """The noise of the sums before rounds 2, 3, …; of a single round there is none to broadcast."""
        return PrefixSums(loss=self.budget(who).running, rounds=max(1, self.records - 1))

    # What leaves.

    def declare(self, who: Consortium) -> Declaration:
        check_terms(who, self.sizes, self.records)
        budget, width, owners = self.budget(who), self.dimensions, len(who.among(OWNER))
        wished = HEADROOM * self.sizes[consumer_of(who)]
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
                    who,
                    loss=budget.owner,
                    numbers=1,
                    limit=bids.LIMIT,
                    asking=asking.asking(budget.asked, budget.readers, self.missed),
                    broadcast=Release(
                        name="running",
                        source=COORDINATOR,
                        to=COORDINATOR,
                        protection=Perturbed(self.running(who), of="bids"),
                        form=Array((width,)),
                        bound=Opened(l2=2.0 * LENGTH, limit=LENGTH * self.records),
                        times=max(1, self.records - 1),
                    ),
                ),
                *self.traded(who, "wish", "running"),
            ),
            adversary=f"up to {budget.readers} of {owners} owners that pool what they saw; the curator is trusted and "
            "sees every bid, and towards curator and consumer there is no differential privacy for the records that "
            "an owner is asked for",
            claim=DISCLOSING,
        )

    # What the curator does.

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        who = parties.consortium
        owners = tuple(who.among(OWNER))
        count = self.sizes[consumer_of(who)]
        target = parties.sum(self.wish).value / count
        grid = parties.declaration["running"].scale(who).grid
        pool, running = Pool(owners, self.features, self.labels, grid), np.zeros(self.dimensions)
        for number in range(self.records):
            aim = direction(target, running, number)
            offers, made = self._round(parties, number, aim)
            pool.close(offers, made)
            if number + 1 < self.records:
                running = parties.perturb("running", pool.sum)
        return {
            "summary": pool.summary(self.records),
            "attribution": pool.attribution(target, self._spread(who)),
        }

    def _spread(self, who: Consortium) -> float:
        """Deviation of the noise on one coordinate of the target."""
        return self.declared(who)["wish"].opened_deviation(who) / self.sizes[consumer_of(who)]

    def _round(self, parties: Parties, number: int, aim: Floats) -> tuple[dict[str, Offer], dict[str, float]]:
        """What who was asked offers, by owner, and all bids."""
        _, made = self.offered(parties, number, aim)
        bits = parties.compute("asked", -bids.ranks(made, parties.consortium.among(OWNER)))
        return self.bought(parties, number, aim, made, bits), made

    # What a site does.

    @step(sends="wish")
    def wish(self, site: Site) -> None:
        tell_owner(site, self.sizes[site.party], "summary.sizes")
        site.contribute(site.total(lambda rows: self.features(rows.features).sum(axis=0)))

    @step(sends="bids")
    def bid(self, site: Site, broadcast: Floats) -> None:
        """The best of this round's records; which it is stays here until the curator asks."""
        number = int(site.label)
        if not number:
            tell_owner(site, self.sizes[site.party], "summary.sizes")
        stream = site.public_stream("summary rounds", site.party)
        mine = np.flatnonzero(rounds_of(len(site.records), self.records, stream) == number)
        place, bid = bids.best(self.features(site.features[mine]), broadcast)
        self.chosen(site, int(mine[place]) if place >= 0 else -1)
        site.contribute(np.array([bid]))

    # What the plan says.

    def expectation(self, who: Consortium) -> str:
        budget, owners = self.budget(who), len(who.among(OWNER))
        noise = self.declared(who)["running"].opened_deviation(who) / self.records
        useless = ", so expect little more than records that are like the target one by one" if noise > 0.1 else ""
        number = asking.expected(owners, budget.each, self.missed)
        return (
            f"about {number:.3g} of {owners} owners are asked in a round; at the end the mean of the summary is known "
            f"to {noise:.2g} in each direction, of features of length 1{useless}"
        )

    def notes(self, who: Consortium) -> tuple[str, ...]:
        budget = self.budget(who)
        return (
            self.kernel_note,
            f"being asked tells one owner eps {budget.each:.3g} about a record of another, {budget.readers} that pool "
            f"what they saw {budget.asked}, once: a record bids in one round; the rest of the loss is that of the "
            "running sum",
            "the value of owners is their share of winning bids, for curator and consumer: an owner that is paid by it "
            "learns its share exactly, outside the guarantee",
        )

    def warnings(self, who: Consortium) -> tuple[str, ...]:
        return (
            "every broadcast of an auction carries noise: at epsilon 1 and 100 records it came closer to the consumer "
            'than a uniform sample on one of three datasets tried; selection = "one-shot" has less noise',
        )
