"""The algorithm of Pathak, Rane and Raj (2010) line by line, beside a direct transcription of it.

The transcription shares no code with the package: a Paillier scheme with small primes, Newton steps, plain integers. A
comment begins with the section or stage of the paper and a letter for the step. What the package publishes must be what
the transcription publishes from the same noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, lcm
from random import Random
from typing import Any

import numpy as np
import pytest

from comity.crypto.products.fixed_point import join_shares
from comity.federation.coordinator.lifecycle import run
from comity.federation.messages.codec import decode
from comity.methods.averaging.published.method import PublishedAveraging
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from tests.support.published import build_published

from .published_consortium import Interrupted, Meeting, QuickKeys, observed

WIDTH, L2, EPSILON = 5, 1.0, 1.0
DRAW = Random(7)


# The transcription.


@dataclass(frozen=True)
class ToyKey:
    """Additively homomorphic encryption ξ: ξ(a)·ξ(b) = ξ(a + b), ξ(a)^b = ξ(ab). Primes of 64 bits: no security."""

    p: int = 18446744073709551557
    q: int = 18446744073709551533

    @property
    def n(self) -> int:
        return self.p * self.q

    def encrypt(self, value: int) -> int:
        r = DRAW.randrange(2, self.n)
        assert gcd(r, self.n) == 1
        return pow(1 + self.n, value % self.n, self.n**2) * pow(r, self.n, self.n**2) % self.n**2

    def add(self, one: int, other: int) -> int:
        return one * other % self.n**2

    def times(self, cipher: int, factor: int) -> int:
        return pow(cipher, factor % self.n, self.n**2)

    def decrypt(self, cipher: int) -> int:
        order = lcm(self.p - 1, self.q - 1)
        value = (pow(cipher, order, self.n**2) - 1) // self.n * pow(order, -1, self.n) % self.n
        return value if value <= self.n // 2 else value - self.n


def fit(x: np.ndarray, y: np.ndarray, l2: float) -> np.ndarray:
    """3.1: argmin of the mean of log(1 + exp(−y w·x)) + λ|w|²/2, by Newton steps."""
    signs, w = 2.0 * y - 1, np.zeros(x.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(signs * (x @ w)))
        gradient = -(x * (signs * p)[:, None]).mean(0) + l2 * w
        hessian = (x.T * (p * (1 - p))) @ x / len(x) + l2 * np.eye(len(w))
        w = w - np.linalg.solve(hessian, gradient)
    return w


def find_smallest(sizes: tuple[int, ...], pi1: list[int], pi2: list[int]) -> int:
    """Stage 1: the obfuscated index of the smallest database."""
    count = len(sizes)
    # 1.a  Each P_j splits n_j = a_j + b_j.
    b = [DRAW.randrange(-(1 << 20), 1 << 20) for _ in sizes]
    a = [size - part for size, part in zip(sizes, b)]
    # 1.b  The parties agree on π1, unknown to Charlie, who receives b in its order.
    charlie = [0] * count
    for j in range(count):
        charlie[pi1[j]] = b[j]
    # 1.c  The parties' key encrypts a, permuted alike.
    key = ToyKey()
    encrypted = [0] * count
    for j in range(count):
        encrypted[pi1[j]] = key.encrypt(a[j])
    # 1.d  Charlie adds r under encryption, subtracts it from his share, and permutes both by π2.
    r = [DRAW.randrange(-(1 << 20), 1 << 20) for _ in sizes]
    masked = [key.add(cipher, key.encrypt(one)) for cipher, one in zip(encrypted, r)]
    own = [share - one for share, one in zip(charlie, r)]
    sent, kept = [0] * count, [0] * count
    for i in range(count):
        sent[pi2[i]], kept[pi2[i]] = masked[i], own[i]
    # 1.e  Each party decrypts one element: parties and Charlie share the doubly permuted sizes.
    held = [key.decrypt(cipher) for cipher in sent]
    assert sorted(one + other for one, other in zip(held, kept)) == sorted(sizes)
    # 1.f  Pairwise comparisons give Charlie the index of the minimum: held_i + kept_i <= held_j + kept_j.
    return next(i for i in range(count) if all(held[i] - held[j] <= kept[j] - kept[i] for j in range(count)))


def select_noise(key: ToyKey, index: int, noises: list[list[int]], pi1: list[int], pi2: list[int]) -> list[int]:
    """Stage 2: the noise of the smallest database under Charlie's key."""
    count, width = len(noises), len(noises[0])
    # 2.a  Charlie's indicator vector of the index, with π2 undone, under his own key.
    u = [int(pi2[i] == index) for i in range(count)]
    encrypted = [key.encrypt(bit) for bit in u]
    # 2.b  The parties undo π1: P_j has an encryption of v_j, 1 if its database is the smallest.
    v = [encrypted[pi1[j]] for j in range(count)]
    # 2.c  P_j draws η_j for its own n_j and computes ξ(v_j)^η_j(i) for every coordinate i.
    powers = [[key.times(v[j], noise) for noise in noises[j]] for j in range(count)]
    # 2.d  The product over all parties encrypts the noise of the smallest alone.
    product = [key.encrypt(0)] * width
    for j in range(count):
        product = [key.add(one, other) for one, other in zip(product, powers[j])]
    return product


def share_sum(key: ToyKey, product: list[int], models: list[list[int]]) -> list[list[int]]:
    """Stage 3: K + 1 additive shares of K·ŵ_s."""
    count, width = len(models), len(product)
    # 3.a  P_1 adds a random s under encryption, and subtracts K·s from its own model.
    s = [DRAW.randrange(-(1 << 40), 1 << 40) for _ in range(width)]
    blinded = [key.add(cipher, key.encrypt(one)) for cipher, one in zip(product, s)]
    first = [weight - count * one for weight, one in zip(models[0], s)]
    # 3.b  Charlie decrypts η + s, and has K(η + s).
    charlie = [count * key.decrypt(cipher) for cipher in blinded]
    # 3.c  Every participant deals additive shares of what it has; what each receives is its share of the sum.
    holdings = [first, *models[1:], charlie]
    received = [[0] * width for _ in holdings]
    for holding in holdings:
        pieces = [[DRAW.randrange(-(1 << 50), 1 << 50) for _ in range(width)] for _ in holdings[1:]]
        pieces.append([value - sum(piece[i] for piece in pieces) for i, value in enumerate(holding)])
        for at, piece in enumerate(pieces):
            received[at] = [one + other for one, other in zip(received[at], piece)]
    return received


def classify(shares: list[list[int]], parties: int, grid: float, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """3.3: Dave adds the published shares, divides by K, and takes label 1 where t = σ(ŵ_s·x) > ½."""
    w = np.array([sum(column) for column in zip(*shares)]) * grid / parties
    return w, (1 / (1 + np.exp(-(x @ w))) > 0.5).astype(int)


# Beside the protocol.


def protocol(kind: type[PublishedAveraging] = QuickKeys) -> PublishedAveraging:
    """Nothing but the width is set: noise and penalty are those of the paper."""
    return build_published(kind, width=WIDTH)


SIZES = (40, 25, 60, 31)


@pytest.fixture(scope="module")
def finished() -> tuple[Meeting, dict[str, Any]]:
    meeting = Meeting(protocol(), SIZES)
    return meeting, run(meeting.parties())


def features_of(meeting: Meeting) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(host.records.features, np.asarray(host.records.labels)) for host in meeting.hosts.values()]


def permutations() -> tuple[list[int], list[int]]:
    one, other = list(range(len(SIZES))), list(range(len(SIZES)))
    DRAW.shuffle(one)
    DRAW.shuffle(other)
    return one, other


def test_the_run_takes_the_papers_constants(finished: tuple[Meeting, dict[str, Any]]) -> None:
    meeting, _ = finished
    assert (meeting.protocol.l2, meeting.protocol.noise) == (L2, "literal")


def test_3_1_local_models_minimise_the_papers_objective(finished: tuple[Meeting, dict[str, Any]]) -> None:
    meeting, _ = finished
    for x, y in features_of(meeting):
        np.testing.assert_allclose(meeting.protocol._fit(x, y), fit(x, y, L2), atol=1e-8)


def test_stage_1_the_curator_learns_the_smallest_place_in_the_order_of_the_parties() -> None:
    pi1, pi2 = permutations()
    index = find_smallest(SIZES, pi1, pi2)
    assert pi2.index(index) == pi1[int(np.argmin(SIZES))]
    places: list[int] = []
    meeting = Meeting(protocol(observed(QuickKeys, places.append)), SIZES)
    with pytest.raises(Interrupted):
        run(meeting.parties())
    stored = meeting.hosts["ash"].store.state("run-1", "averaging.places")
    assert stored is not None
    order = decode(stored)
    assert places == [order[int(np.argmin(SIZES))]]


def test_stage_2_noise_is_laplace_of_the_own_records_and_the_smallest_is_selected(
    finished: tuple[Meeting, dict[str, Any]],
) -> None:
    meeting, released = finished
    grid = meeting.protocol.noise_for(meeting.consortium).grid
    for name, size in zip(meeting.consortium.parties, SIZES):
        # 2.c on the mean is 2/(n_j ε λ); on the sum of K models it is K times that.
        printed = len(SIZES) * 2 / (size * EPSILON * L2) / grid
        assert meeting.noises[name].scales[0] == pytest.approx(printed, rel=2e-3)
    pi1, pi2 = permutations()
    key, drawn = ToyKey(), [[int(one) for one in noise.drawn[0]] for noise in meeting.noises.values()]
    product = select_noise(key, find_smallest(SIZES, pi1, pi2), drawn, pi1, pi2)
    smallest = drawn[int(np.argmin(SIZES))]
    assert [key.decrypt(cipher) for cipher in product] == smallest
    added = join_shares(list(released["shares"].values())) - meeting.exact()
    np.testing.assert_array_equal(added, smallest)


def test_literal_noise_is_independent_laplace_on_every_coordinate() -> None:
    meeting = Meeting(protocol(), SIZES)
    terms = meeting.protocol.noise_for(meeting.consortium)
    scale = terms.mechanism.scale(sensitivity=terms.sensitivity(25), shape=(WIDTH,), grid=terms.grid)
    drawn = SeededNoise(3).discrete_laplace(scale.total, (20_000, WIDTH), permit=simulated_permit("noise"))
    lengths = np.abs(drawn) * terms.grid / len(SIZES)
    # The mean and the deviation of |η_i| are the scale 2/(n ε λ); coordinates do not move together.
    np.testing.assert_allclose(lengths.mean(0), 2 / 25, rtol=0.03)
    np.testing.assert_allclose(lengths.std(0), 2 / 25, rtol=0.05)
    apart = np.corrcoef(lengths.T) - np.eye(WIDTH)
    assert np.abs(apart).max() < 0.04


def test_stage_3_the_published_shares_are_those_of_the_transcription(finished: tuple[Meeting, dict[str, Any]]) -> None:
    meeting, released = finished
    grid, count = meeting.protocol.noise_for(meeting.consortium).grid, len(SIZES)
    pi1, pi2 = permutations()
    key = ToyKey()
    # η of the mean is the K-th part of what was drawn on the grid of the sum: in units of grid/K everything is whole.
    drawn = [[int(one) for one in noise.drawn[0]] for noise in meeting.noises.values()]
    models = [
        [count * round(weight) for weight in np.rint(fit(x, y, L2) / grid).tolist()] for x, y in features_of(meeting)
    ]
    product = select_noise(key, find_smallest(SIZES, pi1, pi2), drawn, pi1, pi2)
    shares = share_sum(key, product, models)
    assert len(shares) == len(released["shares"]) == count + 1
    rows = meeting.hosts["ash"].records.features
    weights, labels = classify(shares, count, grid / count, rows)
    model = meeting.protocol.present(released, meeting.consortium)
    # The two solvers agree to 1e-8, which may round to a neighbour on the grid.
    np.testing.assert_allclose(model.coef_[0], weights, atol=2 * grid + 1e-8)
    # 3.3
    np.testing.assert_array_equal((model.predict(rows) == meeting.protocol.classes[1]).astype(int), labels)


# What section 3.2 says that the protocol ensures.


def test_the_smallest_party_takes_its_noise_off_what_is_published(finished: tuple[Meeting, dict[str, Any]]) -> None:
    """Against (b): nobody could remove the noise. And against (a): the rest tells it that the noise was its own."""
    meeting, released = finished
    published = join_shares(list(released["shares"].values()))
    left = {
        name: float(np.abs(published - noise.drawn[0]).max()) * meeting.protocol.noise_for(meeting.consortium).grid
        for name, noise in meeting.noises.items()
    }
    smallest = meeting.consortium.parties[int(np.argmin(SIZES))]
    np.testing.assert_array_equal(published - meeting.noises[smallest].drawn[0], meeting.exact())
    # No sum of models of this penalty is longer than K times the radius; with another's noise it would be.
    assert left[smallest] <= len(SIZES) * meeting.protocol.radius
