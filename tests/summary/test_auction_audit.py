"""What owners see of two neighbours in either auction: the published one is caught, the corrected one is not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from comity.audit import epsilon_lower_bound
from comity.audit.bound import mu_lower_bound
from comity.entropy import Stream
from comity.methods.summary.auction import market, method
from comity.methods.summary.auction.market import Offer, Pool
from comity.methods.summary.auction.method import bid_direction, draw_rounds
from comity.privacy.loss import Approx, Pure
from comity.privacy.mechanisms import RankCoins
from comity.privacy.mechanisms.prefix_sums import coefficients
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise

from .auctions import build_auction
from .consortia import COLUMNS, make_consortium

SURE = 1 - 1e-7
EPSILON = 0.5


def asked_at(mechanism: Any, ours: float, theirs: float, count: int = 60_000) -> np.ndarray:
    """Whether an owner with a bid of ours is asked, beside one with a bid of theirs."""
    ranks = market.rank_bids({"reader": ours, "other": theirs}, ("reader", "other"))
    signed = ranks if isinstance(mechanism, RankCoins) else -ranks
    found = mechanism.run(SeededNoise(int(ours * 10)), np.tile(signed, (count, 1)), permit=simulated_permit("asked"))
    made: np.ndarray = found[:, 0].astype(float)
    return made


def test_the_published_auction_is_caught_and_the_corrected_one_is_not() -> None:
    """Another owner's record is replaced by a better one, and the reader's rank goes from 1 to 2."""
    coins = RankCoins(epsilon=EPSILON)
    first, second = (asked_at(coins, ours, 1.0) for ours in (2.0, 0.5))
    smallest = 1 - math.exp(-EPSILON)
    assert first.all() and np.mean(second == 0) == pytest.approx(smallest, abs=0.02)
    for delta in (0.0, 1e-5, 0.1, 0.8 * smallest):
        assert epsilon_lower_bound(first, second, delta=delta, confidence=SURE) > 3 * EPSILON
    # With its true δ nothing is left to catch.
    assert epsilon_lower_bound(first, second, delta=smallest, confidence=SURE) <= EPSILON
    corrected = method.ask_mechanism(Pure(EPSILON), 1, 0.2)
    first, second = (asked_at(corrected, ours, 1.0) for ours in (2.0, 0.5))
    assert 0.1 * EPSILON < epsilon_lower_bound(first, second, confidence=SURE) <= EPSILON
    # Control: noise for six times the loss is seen.
    narrow = method.ask_mechanism(Pure(6 * EPSILON), 1, 0.2)
    first, second = (asked_at(narrow, ours, 1.0) for ours in (2.0, 0.5))
    assert epsilon_lower_bound(first, second, confidence=SURE) > EPSILON


def far_apart(features: Any) -> tuple[np.ndarray, np.ndarray]:
    rows = 20 * Stream.public("audit").normal((400, COLUMNS))
    products = features(rows) @ features(rows).T
    one, other = np.unravel_index(int(products.argmin()), products.shape)
    return rows[one], rows[other]


def broadcasts(protocol: Any, consortium: Any, owned: np.ndarray, source: Any, *, eligible: bool) -> np.ndarray:
    """The noisy sums of a run in which one owner bids and another reads along; `eligible` False is the broken twin in
    which a record may bid in every round."""
    release, noise = protocol.declare(consortium)["running"], protocol.running(consortium)
    scale = release.scale(consortium)
    rounds = draw_rounds(len(owned), protocol.records, Stream.public("audited owner"))
    features, found = protocol.features, []
    pool, running = Pool(("one",), features, grid=scale.grid), np.zeros(protocol.dimensions)
    drawn = noise.noise(noise.begin(source, permit=simulated_permit("running")), scale, release.shape)
    for number in range(protocol.records - 1):
        mine = np.flatnonzero((rounds == number) | (not eligible))
        place, bid = market.find_best_bid(
            features(owned[mine]), bid_direction(np.zeros(protocol.dimensions), running, number)
        )
        pool.close({"one": Offer(owned[mine[place]])}, {"one": bid})
        running = pool.sum + drawn.of(number) * scale.grid
        found.append(running)
    return np.array(found)


def estimate_loss(protocol: Any, consortium: Any, *, eligible: bool, count: int) -> float:
    """μ that a reader of all broadcasts tells two owners by, one of whose records is another one. It undoes the
    correlation of the noise, and weighs what is left as the record's summand does."""
    one, other = far_apart(protocol.features)
    turns = protocol.records - 1
    c = coefficients(turns)
    root = np.array([[c[t - k] if k <= t else 0.0 for k in range(turns)] for t in range(turns)])
    undone = np.linalg.inv(root)
    apart = protocol.features(np.stack([one, other]))
    moves = np.ones(turns) if not eligible else np.eye(turns)[0]
    weights = root @ moves
    scores = []
    # A round for each record, and all but one of them alike.
    places = np.flatnonzero(draw_rounds(protocol.records, protocol.records, Stream.public("audited owner")) == 0)
    for number, row in enumerate((one, other)):
        owned = np.repeat(0.5 * np.ones((1, COLUMNS)), protocol.records, axis=0)
        owned[places] = row
        if not eligible:
            owned = row[None]
        source = SeededNoise(number)
        seen = (undone @ broadcasts(protocol, consortium, owned, source, eligible=eligible) for _ in range(count))
        scores.append(np.array([weights @ one_run @ (apart[0] - apart[1]) for one_run in seen]))
    return mu_lower_bound(*scores, confidence=SURE)


@pytest.mark.parametrize(
    ("count", "least"), [(120, 0.0), pytest.param(4000, 0.6, marks=pytest.mark.long)], ids=["quick", "long"]
)
def test_the_running_sum_loses_no_more_than_is_debited_for_it(count: int, least: float) -> None:
    consortium = make_consortium(Approx(4.0, 1e-5))
    protocol = build_auction(records=8, dimensions=2)
    claimed = float(protocol.budget(consortium).running.mu)
    assert least * claimed <= estimate_loss(protocol, consortium, eligible=True, count=count) <= claimed
    # Control: a record that bids in every round, as it does where rounds are not divided among records.
    assert estimate_loss(protocol, consortium, eligible=False, count=count) > claimed
