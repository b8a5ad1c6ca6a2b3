"""The auction of summaries, attacked by owners that pool what they saw: who is asked, and the noisy running sums.

A record bids in one round. There it may move the rank of every other owner by one, and one summand of the running sum.
So the group that shows most differs: records of several owners in one round move a rank one by one, and records in
several rounds move a running sum once each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.audit.bound import epsilon_of_event, gaussian_epsilon, mu_of_test
from comity.audit.cases import PLANE
from comity.audit.claim import Effort
from comity.audit.row import Claim, Control
from comity.federation.declare.consortium import Consortium
from comity.methods.summary import Summary
from comity.methods.summary.auction.market import rank_bids
from comity.methods.summary.auction.method import AuctionSummary, ask_mechanism, ask_threshold
from comity.methods.summary.features import LENGTH
from comity.methods.summary.protocol import OWNER
from comity.privacy.loss import Pure
from comity.privacy.mechanisms import NoisyThreshold
from comity.privacy.mechanisms.prefix_sums import coefficients
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import ReleasedNoise

EPSILON, DELTA = 1.0, 1e-6
AUCTION = 2
"""How many claims `auction_claims` makes."""

_OWNERS = 180
_ROUNDS = 33
_COLLUDERS = 2
_PEOPLE = f"{_COLLUDERS} of {_OWNERS} owners that pool what they saw"


def auction_claims(effort: Effort, confidence: float) -> Iterator[Claim]:
    """Each at this confidence. Together they are the loss that a study with `selection = "auction"` declares."""
    names = (*(f"owner{place:03d}" for place in range(_OWNERS)), "elm")
    method = Summary(PLANE, selection="auction", records=_ROUNDS, sizes=400, dimensions=4)
    study = method.study(names, consumer="elm", epsilon=EPSILON, delta=DELTA, colluders=_COLLUDERS)
    agreement = study.agreement
    assert isinstance(agreement.protocol, AuctionSummary)
    yield _asked(agreement.protocol, agreement.consortium, effort, confidence)
    yield _running_sums(agreement.protocol, agreement.consortium, effort, confidence)


def _asked(protocol: AuctionSummary, consortium: Consortium, effort: Effort, confidence: float) -> Claim:
    """Colluding owners whose rank lies beyond the threshold, where the chance to be asked falls by e^ε for each owner
    that bids more. Records of `group` other owners outbid them all, or none."""
    started, group = time.perf_counter(), 80
    budget, owners = protocol.budget(consortium), tuple(consortium.among(OWNER))
    colluders, draws = owners[:_COLLUDERS], effort.pure_draws // 10
    ahead = math.ceil(ask_threshold(budget.each, protocol.missed))
    movers, above, below = np.split(np.array(owners[_COLLUDERS:]), [group, group + ahead])

    def rank(bid: float) -> NDArray[np.int64]:
        """The ranks of the colluders, when the records of the group have this bid."""
        bids = dict.fromkeys(colluders, 0.0) | dict.fromkeys(above.tolist(), 1.0)
        bids |= dict.fromkeys(below.tolist(), -1.0) | dict.fromkeys(movers.tolist(), bid)
        return rank_bids(bids, owners)[:_COLLUDERS]

    def measure(mechanism: NoisyThreshold) -> float:
        """The bits of the colluders have independent noise, and chances that move by one factor: they count together,
        and their losses add up."""
        asked = [
            int(mechanism.run(ReleasedNoise(), np.tile(-rank(bid), (draws, 1)), permit=simulated_permit("asked")).sum())
            for bid in (-2.0, 2.0)
        ]
        one = epsilon_of_event(hits=asked[0], hits_other=asked[1], draws=draws * _COLLUDERS, confidence=confidence)
        return _COLLUDERS * one / group

    mechanism = ask_mechanism(budget.asked, budget.readers, protocol.missed)
    claimed, name = float(budget.asked.epsilon), "summary by auction, who is asked"
    twins = {
        "noise / 1.2": ask_mechanism(Pure(1.2 * claimed), budget.readers, protocol.missed),
        "noise for half the sensitivity": ask_mechanism(Pure(2 * claimed), budget.readers, protocol.missed),
        "each colluder's bit charged alone": ask_mechanism(budget.asked, 1, protocol.missed),
    }
    return Claim(
        name=name,
        claimed=claimed,
        measured=measure(mechanism),
        # Each owner that bids more is one step of Laplace noise of this width.
        design=_COLLUDERS / (mechanism.scale.total * mechanism.scale.grid),
        delta=0.0,
        view=f"{_PEOPLE}: whether each was asked",
        pair=f"the records of {group} other owners in one round, which bid more than the colluders or less",
        group=group,
        draws=draws,
        controls=tuple(_control(name, twin, measure(broken), claimed) for twin, broken in twins.items()),
        seconds=time.perf_counter() - started,
    )


def _running_sums(protocol: AuctionSummary, consortium: Consortium, effort: Effort, confidence: float) -> Claim:
    """Records that win the first rounds or leave them to their opposites, seen by someone who undoes the correlation of
    the noise. All of them move one coordinate; the noise of the others is independent of it."""
    started, group = time.perf_counter(), 12
    noise = protocol.running(consortium)
    scale = protocol.declared(consortium)["running"].scale(consortium)
    rounds, step = noise.rounds, round(2 * LENGTH / scale.grid)
    draws = min(2 * effort.draws, effort.numbers // rounds)
    first_column = coefficients(rounds)
    factor = np.array([[first_column[t - k] if k <= t else 0.0 for k in range(rounds)] for t in range(rounds)])

    def measure(taken: int, records: int, narrower: float = 1.0) -> float:
        """Where the group takes part in this many rounds, and counts as so many records."""
        # A summand of round k moves the sums by the k-th column of C², so C⁻¹ of the sums by the k-th column of C.
        moved = step * factor[:, :taken].sum(axis=1)
        sums = step * np.minimum(np.arange(1, rounds + 1), taken)
        draw = partial(_draw_sums, noise, scale, draws, narrower)
        scores = [np.linalg.solve(factor, draw() + shift[:, None]).T @ moved for shift in (0 * sums, sums)]
        middle = float(moved @ moved) / 2
        mu = mu_of_test(
            missed=int((scores[1] < middle).sum()),
            false=int((scores[0] >= middle).sum()),
            draws=draws,
            confidence=confidence,
        )
        return gaussian_epsilon(mu / records, DELTA)

    claimed = gaussian_epsilon(math.sqrt(float(noise.charged.square)), DELTA)
    name = "summary by auction, running sums"
    reach = float(np.linalg.norm(step * factor[:, :group].sum(axis=1)) / scale.total / group)
    return Claim(
        name=name,
        claimed=claimed,
        measured=measure(group, group),
        design=gaussian_epsilon(reach, DELTA),
        delta=DELTA,
        view=f"{_PEOPLE}, and everyone else who sees the broadcasts",
        pair=f"{group} records that each win one of the first {group} rounds, or their opposites",
        group=group,
        draws=draws,
        controls=(
            _control(name, "noise for half the sensitivity", measure(group, group, narrower=2.0), claimed),
            _control(name, "a record that bids in every round", measure(rounds, 1), claimed),
        ),
        seconds=time.perf_counter() - started,
    )


def _draw_sums(noise: Any, scale: Any, draws: int, narrower: float) -> NDArray[np.float64]:
    """(rounds, draws): the noise of as many independent sequences, side by side."""
    drawn = noise.noise(noise.begin(ReleasedNoise(), permit=simulated_permit("running")), scale, (draws,))
    return np.array([drawn.of(number) for number in range(noise.rounds)], np.float64) / narrower


def _control(name: str, twin: str, measured: float, claimed: float) -> Control:
    return Control(f"{name}: {twin}", measured > claimed, measured, claimed)
