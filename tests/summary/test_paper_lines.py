"""The three algorithms of Sarpatwar et al. (2019), line by line, beside direct transcriptions of their pseudo-code.

Transcriptions are plain numpy and import nothing of the method. Where the paper draws, both take the same draws.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pytest

from comity.entropy import Stream
from comity.federation.coordinator.parties import Parties
from comity.federation.owner.site import Site
from comity.methods.summary.published import method as published
from comity.methods.summary.published.hashes import PhasedCosines
from comity.privacy.mechanisms import MeanWeights
from comity.privacy.mechanisms.sarpatwar import quantise
from tests.support.noise import make_permit

from .auctions import SEEDS, build_published, run_seeded
from .consortia import CONSUMER, OWNERS, make_records

# Algorithm 1.


def algorithm_1(x: np.ndarray, omega: list[np.ndarray], b: list[float]) -> np.ndarray:
    d = len(omega)
    # 5: return h1(x) = sqrt(2/d) [cos(w_1 x + b_1), ..., cos(w_d x + b_d)]
    return np.array([np.sqrt(2 / d) * np.cos(omega[i] @ x + b[i]) for i in range(d)])


def test_algorithm_1() -> None:
    chance, gamma = np.random.default_rng(1), 0.1
    hashed = PhasedCosines.draw(6, 140, gamma, Stream(bytes(32)))
    rows = 3 * chance.normal(size=(20, 6))
    printed = np.array([algorithm_1(x, list(hashed.frequencies.T), list(hashed.phases)) for x in rows])
    assert hashed(rows) == pytest.approx(printed, abs=2e-6)
    # 3: w_i from N(0, 2 gamma I), once. 4: b_i uniform on [0, 2 pi], once.
    many = PhasedCosines.draw(6, 20_000, gamma, Stream(bytes(32)))
    assert np.cov(many.frequencies) == pytest.approx(2 * gamma * np.eye(6), abs=0.01)
    assert np.histogram(many.phases, 10, (0, 2 * np.pi))[0] == pytest.approx(np.full(10, 2000), abs=250)
    assert build_published().features is build_published().features


# Algorithm 2.


@dataclass
class Given:
    """Draws that are given in advance; the chances of each choice are noted."""

    epsilon: float
    steps: int
    choices: list[int]
    noises: list[int]
    chances: list[np.ndarray] = field(default_factory=list)
    seeded = True

    def exponential_choice(self, scores: Any, scale: float, *, permit: Any) -> np.ndarray:
        permit.use()
        weights = np.exp((scores[0] - scores[0].max()) / scale)
        self.chances.append(weights / weights.sum())
        return np.array([self.choices[len(self.chances) - 1]])

    def discrete_laplace(self, scale: float, shape: Any, *, permit: Any) -> np.ndarray:
        permit.use()
        assert scale == pytest.approx(self.steps / self.epsilon, rel=1e-6)
        return np.full(shape, self.noises[len(self.chances) - 1])


def algorithm_2(
    dataset: np.ndarray, epsilon: float, eta: float, iterations: int, choices: list[int], noises: list[float]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """h2, with the distribution over all vectors of the grid written out. The entries of `dataset` are in ±√(2/d)."""
    q, d = dataset.shape
    grid = np.arange(-1, 1 + eta / 2, eta)
    # 3: D_Q, entries on the grid; P_0 uniform over S^d.
    quantised = grid[np.abs((dataset * np.sqrt(d / 2))[..., None] - grid).argmin(axis=-1)]
    space = np.array(list(product(grid, repeat=d)))
    p = np.full(len(space), 1 / len(space))
    w_data, kept, chances = quantised.sum(axis=0), [], []
    # 4: for all t <= T
    for t in range(iterations):
        # 5: coordinate i with probability proportional to exp(eps |w(P, i) - w(D_Q, i)|)
        w_p = q * (p @ space)
        psi = np.abs(w_p - w_data)
        chances.append(np.exp(epsilon * psi) / np.exp(epsilon * psi).sum())
        i = choices[t]
        # 6: mu = w(D_Q, i) + Lap(1/eps); P_t(s) ~ P_{t-1}(s) exp[s_i (mu - w(P_{t-1}, i)) / 2q]
        mu = w_data[i] + noises[t]
        p = p * np.exp(space[:, i] * (mu - w_p[i]) / (2 * q))
        p = p / p.sum()
        kept.append(p)
    # 8: P_avg. 9: return sqrt(2/d) (1/q) [w(P_avg, 1) ... w(P_avg, d)]
    average = np.mean(kept, axis=0)
    return np.sqrt(2 / d) * (1 / q) * (q * (average @ space)), chances


def test_algorithm_2() -> None:
    chance, steps, epsilon, d = np.random.default_rng(2), 4, 0.4, 3
    for _ in range(5):
        dataset = np.sqrt(2 / d) * np.cos(6 * chance.random((9, d)))
        choices, noises = chance.integers(0, d, 12).tolist(), chance.integers(-9, 9, 12).tolist()
        printed, chances = algorithm_2(dataset, epsilon, 1 / steps, 12, choices, [one / steps for one in noises])
        sums = quantise(dataset * np.sqrt(d / 2), steps).sum(axis=0)
        mechanism = MeanWeights(epsilon=epsilon, iterations=12, dimensions=d, steps=steps)
        source: Any = Given(epsilon, steps, choices, noises)
        means, _ = mechanism.run(source, (sums, np.zeros(d), len(dataset)), permit=make_permit())
        assert means * np.sqrt(2 / d) == pytest.approx(printed, abs=1e-9)
        # Scores are put on the grid of the sums before the choice.
        assert np.array(source.chances) == pytest.approx(np.array(chances), abs=epsilon / steps)


# Algorithm 3.


@dataclass
class Draws:
    """What a run drew, in order: the consumer's h2, the h2 of each round, and the coins of each round."""

    wish: np.ndarray = field(default_factory=lambda: np.zeros(0))
    means: list[np.ndarray] = field(default_factory=list)
    coins: list[np.ndarray] = field(default_factory=list)
    hashed: list[tuple[np.ndarray, int]] = field(default_factory=list)


def noted_run(monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Draws, Any, list[tuple[str, int, int]]]:
    noted, asked = Draws(), []
    computed, opened, at_site = Parties.compute, published.weigh_seeds, Site.compute

    def compute(self: Any, name: str, values: Any) -> Any:
        found = computed(self, name, values)
        if name == "means":
            noted.hashed.append((values[0], values[2]))
        (noted.coins if name == "asked" else noted.means).append(found if name == "asked" else found[0])
        return found

    def weigh(sums: Any, records: int, stream: Any, **more: Any) -> Any:
        found = opened(sums, records, stream, **more)
        noted.hashed.append((sums, records))
        noted.means.append(found[0])
        return found

    def wish(self: Any, values: Any, **more: Any) -> Any:
        found = at_site(self, values, **more)
        noted.wish = found[0]
        return found

    sell = published.PublishedSummary.sell

    def sold(self: Any, site: Any, ask: Any) -> Any:
        asked.append((site.party, int(site.label), int(ask[0])))
        return sell(self, site, ask)

    sold.__dict__["spec"] = sell.spec  # type: ignore[attr-defined]
    monkeypatch.setattr(Parties, "compute", compute)
    monkeypatch.setattr(published, "weigh_seeds", weigh)
    monkeypatch.setattr(Site, "compute", wish)
    monkeypatch.setattr(published.PublishedSummary, "sell", sold)
    protocol = build_published(**options)
    return noted, (protocol, run_seeded(protocol)), asked


def algorithm_3(
    owners: dict[str, np.ndarray], h1: Any, drawn: Draws, p: int, tau: int, d: int
) -> tuple[list[np.ndarray], list[tuple[str, int, int]], list[np.ndarray]]:
    """The summary, whom the aggregator asks in each round, and h1 of the summary before each broadcast."""
    scale = np.sqrt(2 / d)
    # 3: D_s <- D_init, and g~ = h2(h1(D_v))
    summary, g_target = list(SEEDS), drawn.wish * scale
    held = {name: list(range(len(rows))) for name, rows in owners.items()}
    counts: dict[tuple[str, int], int] = {}
    pool: list[np.ndarray] = []
    asks, hashed = [], []
    # 4: for l = 1 ... p
    for number in range(1, p + 1):
        # 5: g_l = h2(h1(D_s))
        hashed.append(h1(np.array(summary)))
        g = drawn.means[number - 1] * scale
        # 6: b_i = max over x of g_l h1(x) - g~ h1(x) l/(l+1)
        chosen, bids = {}, {}
        for name, rows in owners.items():
            worth = h1(rows[held[name]]) @ g - h1(rows[held[name]]) @ g_target * number / (number + 1)
            chosen[name], bids[name] = held[name][int(worth.argmax())], float(worth.max())
        # 12: order by decreasing bid. 13: rank i is asked with probability exp(-eps (i - 1)): the coins are given.
        order = sorted(owners, key=lambda name: -bids[name])
        assert drawn.coins[number - 1][list(owners).index(order[0])] == 1
        for place, name in enumerate(owners):
            # 14: what was chosen tau times by its source is asked for
            counts[name, chosen[name]] = counts.get((name, chosen[name]), 0) + 1
            wanted = bool(drawn.coins[number - 1][place]) or counts[name, chosen[name]] >= tau
            asks.append((name, number - 1, int(wanted)))
            if wanted:
                pool.append(owners[name][chosen[name]])
                # 16: owners leave out what they sent
                held[name].remove(chosen[name])
        # 15: the largest bid of the pool. 8: it joins the summary
        along = h1(np.array(pool)) @ (g - number / (number + 1) * g_target)
        summary.append(pool.pop(int(along.argmax())))
    # 10: return D_s - D_init
    return summary[len(SEEDS) :], asks, hashed


@pytest.mark.parametrize("tau", [2, 100])
def test_algorithm_3(tau: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, (protocol, outcome), asked = noted_run(monkeypatch, tau=tau, records=10)
    owners = {name: make_records()[name].features for name in OWNERS}
    summary, asks, hashed = algorithm_3(owners, protocol.features, drawn, 10, tau, 20)
    assert np.array_equal(outcome.presented.rows, np.array(summary))
    assert sorted(asked) == sorted(asks)
    assert len(drawn.hashed) == len(hashed) == 10
    steps = protocol.constants.steps(20)
    for (sums, count), features in zip(drawn.hashed, hashed):
        assert count == len(features)
        assert np.array_equal(sums, np.rint(features / np.sqrt(2 / 20) * steps).sum(axis=0))
    # The bid is as printed: the corrected one asks and buys otherwise.
    assert protocol.bid_sign == "printed" and CONSUMER not in outcome.presented.owners
