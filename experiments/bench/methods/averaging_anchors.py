"""What a user would pick instead of averaged models, by plain functions on arrays: no cryptography, no ledger.

Federated averaging with clipping and Gaussian noise comes in two forms with a guarantee for a record:

    client noise   sites send updates of several local steps, clipped to a norm; a trusted server averages them and adds
                   noise. A record can change its site's whole update, so the noise is for whole sites (2·clip/K).
    local noise    sites clip each record's gradient and add the noise themselves, before anything leaves: no trust in
                   the server, and K times the variance of a sum that is noised once.

Both are given their best step length and number of rounds, chosen on the test records, which no private method may do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from comity.data import Records
from comity.entropy import Stream

Floats = NDArray[np.float64]

LOCAL_STEPS = 5


@dataclass(frozen=True, eq=False)
class Anchor:
    """The best setting of a method: mean error, its spread, rounds, and bytes that its sites send and receive."""

    error: float
    spread: float
    rounds: int
    sent: int
    setting: str


def settings(quick: bool) -> list[tuple[int, float]]:
    """Rounds and step lengths that an anchor is given the best of."""
    rounds, lengths = ((10,), (8.0, 32.0)) if quick else ((5, 10, 20), (2.0, 8.0, 32.0))
    return list(product(rounds, lengths))


def wrong(weights: Floats, test: Records) -> float:
    """Share of test records on the wrong side of a linear model."""
    return float(np.mean((test.features @ weights > 0) != (np.asarray(test.labels) > 0)))


def best(
    method: Callable[..., Floats], parties: Sequence[Records], test: Records, rho: float, *, repeats: int, quick: bool
) -> Anchor:
    width, found = test.features.shape[1], []
    for count, length in settings(quick):
        errors = []
        for number in range(repeats):
            stream = Stream.public("bench averaging", method.__name__, str(length), count, number)
            weights = method(parties, rho, rounds=count, length=length, stream=stream)
            errors.append(wrong(weights, test))
        sent = 2 * 8 * width * len(parties) * count
        found.append(
            Anchor(float(np.mean(errors)), float(np.std(errors)), count, sent, f"{count} rounds, step {length:g}")
        )
    return min(found, key=lambda anchor: anchor.error)


def client_noise(parties: Sequence[Records], rho: float, *, rounds: int, length: float, stream: Stream) -> Floats:
    width, clip = parties[0].features.shape[1], 1.0
    weights = np.zeros(width)
    sigma = 2 * clip / len(parties) * sqrt(rounds / (2 * rho))
    for _ in range(rounds):
        updates = []
        for own in parties:
            local = weights.copy()
            for _ in range(LOCAL_STEPS):
                local -= length * _gradient(own, local) / max(1, len(own))
            update = local - weights
            updates.append(update * min(1.0, clip / max(float(np.linalg.norm(update)), 1e-300)))
        weights = weights + np.mean(updates, axis=0) + sigma * stream.normal(width)
    return weights


def local_noise(parties: Sequence[Records], rho: float, *, rounds: int, length: float, stream: Stream) -> Floats:
    width = parties[0].features.shape[1]
    weights, ways = np.zeros(width), []
    # A logistic gradient is no longer than its record, so that a clip at 1 changes nothing.
    sigma = 2 * sqrt(rounds / (2 * rho))
    total = sum(len(own) for own in parties)
    for _ in range(rounds):
        noisy = sum(_gradient(own, weights) + sigma * stream.normal(width) for own in parties)
        weights = weights - length * noisy / total
        ways.append(weights)
    return np.asarray(np.mean(ways[len(ways) // 2 :], axis=0), np.float64)


def objective_perturbation(own: Records, epsilon: float, l2: float, stream: Stream) -> Floats:
    """One owner's private fit by itself (Chaudhuri, Monteleoni, Sarwate 2011), with the corrected ε'.

    A random linear term b·w/n is added to the objective before it is minimised, |b| ~ Gamma(d, 2/ε'). The density of b
    behind a minimiser changes with the data through a determinant too, which costs ln(1 + 2c/(nλ) + c²/(nλ)²) of ε for
    a curvature of c = 1/4; where that leaves nothing, the penalty grows until half of ε is left. The proof needs the
    exact minimiser; here the gradient is brought below 1e-10, and nothing is released.
    """
    count, width, curvature = len(own), own.features.shape[1], 0.25
    left = epsilon - log(1 + 2 * curvature / (count * l2) + (curvature / (count * l2)) ** 2)
    if left <= 0:
        l2, left = curvature / (count * (exp(epsilon / 4) - 1)), epsilon / 2
    direction = stream.normal(width)
    radius = -2 / left * np.log1p(-stream.uniform(width)).sum()
    pull = radius * direction / np.linalg.norm(direction) / count
    return _newton(own, l2, pull)


def _gradient(own: Records, weights: Floats) -> Floats:
    return np.asarray(own.features.T @ (expit(own.features @ weights) - own.labels), np.float64)


def _newton(own: Records, l2: float, pull: Floats) -> Floats:
    """Damped Newton for the mean logistic loss with a penalty and a linear term."""
    x, y = own.features, np.asarray(own.labels, np.float64)
    weights = np.zeros(x.shape[1])

    def value(at: Floats) -> float:
        margins = x @ at
        return float(np.mean(np.logaddexp(0, margins) - y * margins) + l2 / 2 * at @ at + pull @ at)

    for _ in range(100):
        shares = expit(x @ weights)
        gradient = x.T @ (shares - y) / len(y) + l2 * weights + pull
        if np.linalg.norm(gradient) < 1e-10:
            break
        matrix = (x.T * (shares * (1 - shares))) @ x / len(y) + l2 * np.eye(len(weights))
        step, length, now = np.linalg.solve(matrix, gradient), 1.0, value(weights)
        while value(weights - length * step) > now + 1e-14 and length > 1e-6:
            length /= 2
        weights = weights - length * step
    return weights
