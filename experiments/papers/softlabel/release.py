"""One statistic released many times: the sum is computed once, the noise that the protocol declares is drawn anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from comity.methods.softlabel import SoftLabelProtocol, Statistic
from comity.privacy import Gaussian, NoiseSource, loss_of, simulated_permit
from comity.protocol import Consortium, NumberedParties, Release

Floats = NDArray[np.float64]

DELTA = 1e-6
# Parts of this many parties are drawn at once where coordinates are independent.
_CHUNK = 500


def make_consortium(parties: int, epsilon: float, delta: float) -> Consortium:
    """Parties on the terms of a study that sets nothing: one colluder, no dropouts, a whole party replaced."""
    return Consortium(parties=NumberedParties(parties), loss=loss_of(epsilon, delta))


def opened(protocol: SoftLabelProtocol, consortium: Consortium) -> tuple[Statistic, Release]:
    """The statistic that the protocol takes in this consortium, and the release of its sum."""
    statistic = protocol.choice(consortium).statistic
    return statistic, protocol.declare(consortium)[statistic.name]


def total(release: Release, contributions: Iterable[Floats], consortium: Consortium) -> NDArray[np.int64]:
    """Stacks of contributions, each brought inside its bound and put on the grid as at a site, summed."""
    units, grid = np.zeros(release.shape, np.int64), release.spacing(consortium)
    for stack in contributions:
        units += np.rint(release.bounded.enforce(stack, release.shape) / grid).astype(np.int64).sum(axis=0)
    return units


def noisy_means(
    release: Release, units: NDArray[np.int64], consortium: Consortium, source: NoiseSource, draws: int
) -> Iterator[Floats]:
    """Opened means, every party having added its part of the noise."""
    for _ in range(draws):
        yield (units + shared_noise(release, consortium, source)) * release.spacing(consortium) / consortium.size


def shared_noise(release: Release, consortium: Consortium, source: NoiseSource) -> NDArray[np.int64]:
    """The sum of the parties' parts, in grid units."""
    noise, scale = release.noise, release.scale(consortium)
    assert noise is not None
    out = np.zeros(release.shape, np.int64)
    # Parts of Gaussian noise are independent in every number; a part of spherical noise is one vector of one party.
    chunk = _CHUNK if isinstance(noise, Gaussian) else 1
    for start in range(0, consortium.size, chunk):
        shape = (min(chunk, consortium.size - start), *release.shape) if chunk > 1 else release.shape
        drawn = noise.draw(source, scale, shape, permit=simulated_permit(release.name), part=True)
        out += drawn.sum(axis=0) if chunk > 1 else drawn
    return out
