"""Mechanisms that are known to be broken, for audits to catch. No study can name them, and nothing else imports them.

Each function attacks one of them as an audit attacks the real one, and returns a `Control`: the loss that the attack
proves, and the loss that the broken mechanism claims. A control that is not caught means that the audit is blind.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.audit.bound import epsilon_lower_bound, epsilon_of_event, gaussian_epsilon, mu_of_test
from comity.audit.capture import host_parties, without_warnings
from comity.audit.cases import PLANE
from comity.audit.row import Control
from comity.audit.study import NeighbourRecords, encode
from comity.entropy import Stream, fresh_seed
from comity.federation.coordinator.lifecycle import begin, ready, release_values
from comity.federation.messages.codec import decode
from comity.methods.vertical import Vertical
from comity.privacy.loss import Approx, Pure
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import ReleasedNoise, SeededNoise

Floats = NDArray[np.float64]

_EPSILON, _DELTA = 1.0, 1e-6
_DRAWS = 40_000


def every_control(confidence: float) -> tuple[Control, ...]:
    """All of them, at this confidence in total."""
    each = 1 - (1 - confidence) / len(_CONTROLS)
    return tuple(control(each) for control in _CONTROLS)


def literal_laplace(confidence: float) -> Control:
    """Laplace noise on every coordinate for a bound in L2, as averaged classifiers were published (Pathak, Rane, Raj
    2010): a record that moves all of d coordinates alike loses √d·ε."""
    dimensions = 16
    noise = Laplace(Pure(_EPSILON))
    scale = noise.scale(sensitivity=1.0, shape=(1,))
    step = int(1 / math.sqrt(dimensions) / scale.grid)
    first, second = (
        noise.draw(ReleasedNoise(), scale, (_DRAWS, dimensions), permit=simulated_permit("models")) for _ in range(2)
    )
    lost = dimensions * epsilon_of_event(
        hits=int((second + step >= step).sum()),
        hits_other=int((first >= step).sum()),
        draws=_DRAWS * dimensions,
        confidence=confidence,
    )
    return _control("literal Laplace noise for an L2 bound", lost)


def wrong_radius(confidence: float) -> Control:
    """Spherical noise whose length is exponential in every dimension: its density is unbounded at the true value, so
    points near it give the value away. The length of the right noise has a Gamma distribution of shape d."""
    dimensions, beta = 8, 1 / _EPSILON
    stream = Stream(fresh_seed())

    def views(centre: float) -> Floats:
        way = stream.normal((_DRAWS, dimensions))
        length = -beta * np.log(stream.uniform((_DRAWS, 1)))
        seen = way / np.linalg.norm(way, axis=1, keepdims=True) * length
        seen[:, 0] += centre
        return np.asarray(seen, np.float64)

    near = [int((np.linalg.norm(views(centre), axis=1) < 0.3).sum()) for centre in (0.0, 1.0)]
    lost = epsilon_of_event(hits=near[0], hits_other=near[1], draws=_DRAWS, confidence=confidence)
    return _control("spherical noise of the wrong radius", lost)


def printed_auction(confidence: float) -> Control:
    """The auction as printed (Sarpatwar et al. 2019): an owner in first place is always asked, one in second place with
    probability e^−ε, so that an owner who is not asked knows that it was outbid."""
    from comity.privacy.mechanisms import RankCoins

    coins = RankCoins(epsilon=_EPSILON)
    asked = [
        coins.run(ReleasedNoise(), np.tile(np.array(ranks), (_DRAWS, 1)), permit=simulated_permit("asked"))[:, 0]
        for ranks in ((2, 1), (1, 2))
    ]
    lost = max(
        epsilon_of_event(
            hits=int((one == 0).sum()), hits_other=int((other == 0).sum()), draws=_DRAWS, confidence=confidence
        )
        for one, other in (asked, asked[::-1])
    )
    return _control("the auction as printed", lost)


def bounds_from_data(confidence: float) -> Control:
    """A mean whose range is that of the records: one outlier changes the scale that everybody's values are put on, and
    with it what the noise is scaled for."""
    noise = Laplace(Pure(_EPSILON))
    scale = noise.scale(sensitivity=1.0, shape=(1,))

    def views(values: Floats) -> Floats:
        low, high = values.min(), values.max()
        scaled = ((values - low) / (high - low)).sum()
        drawn = noise.draw(ReleasedNoise(), scale, (_DRAWS,), permit=simulated_permit("mean"))
        return np.asarray(scaled / scale.grid + drawn, np.float64)

    common = np.linspace(0.0, 1.0, 40)
    lost = epsilon_lower_bound(views(np.append(common, 1.0)), views(np.append(common, 100.0)), confidence=confidence)
    return _control("bounds taken from the records", lost)


def seeded_noise(confidence: float) -> Control:
    """Noise from a seed that the reader knows: it is subtracted, and the value is left."""
    noise = Gaussian(Approx(_EPSILON, _DELTA))
    scale = noise.scale(sensitivity=1.0, shape=(1,))
    step = int(1 / scale.grid)

    def left_over(value: int) -> NDArray[np.int64]:
        drawn, known = (
            noise.draw(SeededNoise(7), scale, (_DRAWS,), permit=simulated_permit("seeded")) for _ in range(2)
        )
        return value + drawn - known

    first, second = left_over(0), left_over(step)
    mu = mu_of_test(
        missed=int((second < step / 2).sum()), false=int((first >= step / 2).sum()), draws=_DRAWS, confidence=confidence
    )
    return _control("noise from a known seed", gaussian_epsilon(mu, _DELTA))


def floating_laplace(confidence: float) -> Control:
    """Laplace noise in doubles (Mironov 2012): which doubles can come out depends on the value. Beside 1 no output has
    more than 52 bits behind the point, beside 0 about half have."""
    stream = Stream(fresh_seed())

    def views(value: float) -> Floats:
        uniform = np.maximum(stream.uniform((_DRAWS,)), 2.0**-53)
        sign = np.where(stream.uniform((_DRAWS,)) < 0.5, -1.0, 1.0)
        return np.asarray(value + sign * np.log(uniform) / _EPSILON, np.float64)

    def fine(seen: Floats) -> int:
        scaled = seen * 2.0**52
        return int(((np.abs(seen) < 0.5) & (scaled != np.rint(scaled))).sum())

    lost = epsilon_of_event(hits=fine(views(0.0)), hits_other=fine(views(1.0)), draws=_DRAWS, confidence=confidence)
    return _control("Laplace noise in floating point", lost)


def second_survivor_list(confidence: float) -> Control:
    """A sum opened twice, over two lists of survivors: the difference is one party's value under its own part of the
    noise alone. A site signs one list and refuses the other."""
    parts, group = 4, 8
    noise = Gaussian(Approx(_EPSILON, _DELTA))
    scale = noise.scale(sensitivity=1.0, shape=(1,), parts=parts)
    step = group * int(1 / scale.grid)

    def differences(value: int) -> NDArray[np.int64]:
        own, others = (
            noise.draw(ReleasedNoise(), scale, (_DRAWS,), permit=simulated_permit("sum"), part=True) for _ in range(2)
        )
        return (value + own + others) - others

    first, second = differences(0), differences(step)
    mu = mu_of_test(
        missed=int((second < step / 2).sum()), false=int((first >= step / 2).sum()), draws=_DRAWS, confidence=confidence
    )
    return _control("a second list of survivors", gaussian_epsilon(mu / group, _DELTA))


def noise_drawn_twice(confidence: float) -> Control:
    """A repeated ask that is answered with fresh noise: the mean of two answers has half the variance. A site gives
    the stored answer again, byte for byte."""
    group = 16
    noise = Gaussian(Approx(_EPSILON, _DELTA))
    scale = noise.scale(sensitivity=1.0, shape=(1,))
    step = group * int(1 / scale.grid)

    def means(value: int) -> Floats:
        answers = noise.draw(ReleasedNoise(), scale, (2, _DRAWS), permit=simulated_permit("retry"))
        return np.asarray(value + answers.mean(axis=0), np.float64)

    first, second = means(0), means(step)
    mu = mu_of_test(
        missed=int((second < step / 2).sum()), false=int((first >= step / 2).sum()), draws=_DRAWS, confidence=confidence
    )
    return _control("noise drawn anew for a repeated ask", gaussian_epsilon(mu / group, _DELTA))


def sums_between_parties(confidence: float) -> Control:
    """The published vertical regression adds noise after a pair of parties has opened its sums: what one of them reads
    of the other's columns is exact. Runs on two tables that differ in one record are told apart every time."""
    claimed, runs, held = 0.1, 20, {"ash": ["x", "outcome"], "birch": ["y"]}
    method = Vertical(PLANE, columns=held, variant="published", intercept=True)
    agreement = method.study(tuple(held), epsilon=claimed).agreement
    made = NeighbourRecords(PLANE, agreement.consortium, "ash", by_columns=True, group=1, others=12)
    ends = [pd.DataFrame({"x": [end], "y": [end], "outcome": ["yes"]}) for end in (-1.0, 1.0)]

    def sums(row: pd.DataFrame) -> int:
        """All products of birch's column with ash's, as birch puts its own shares and those of ash together."""
        parties = host_parties(agreement, encode(agreement, made.candidate(row)), noise=ReleasedNoise)
        with without_warnings():
            run = parties.coordinator("audit")
            ready(run)
            begin(run)
            release_values(run)
        shares = [
            decode(parties.hosts[reader].store.state("audit", f"in:sums:{writer}") or b"")
            for reader, writer in (("ash", "birch"), ("birch", "ash"))
        ]
        return int(sum(shares).view(np.int64).sum())

    exact = sums(ends[0])
    equal = [sum(sums(row) == exact for _ in range(runs)) for row in ends]
    lost = epsilon_of_event(hits=equal[0], hits_other=equal[1], draws=runs, confidence=confidence)
    return Control("published sums between two parties, without noise", lost > claimed, lost, claimed)


def _control(name: str, lost: float) -> Control:
    return Control(name, lost > _EPSILON, lost, _EPSILON)


_CONTROLS: tuple[Callable[[float], Control], ...] = (
    literal_laplace,
    wrong_radius,
    printed_auction,
    bounds_from_data,
    seeded_noise,
    floating_laplace,
    second_survivor_list,
    noise_drawn_twice,
    sums_between_parties,
)
