"""The same release with all columns in one place: for comparisons at a size where hosts would take hours.

What the secure run opens is the exact weighted entries (with rlwe rarely one unit beside) plus one part of the noise
per party, and so it is here; a test compares the two number by number.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.federation.declare.consortium import Consortium
from comity.methods.vertical.protocol import VerticalRegression
from comity.privacy.permit import simulated
from comity.privacy.randomness import NoiseSource

Floats = NDArray[np.float64]


def noised(protocol: VerticalRegression, exact: Floats, who: Consortium, source: NoiseSource) -> Floats:
    """Exact weighted entries with every party's part of the noise."""
    release = protocol.moments(who.loss)
    scale, noise = release.scale(who), release.noise
    assert noise is not None
    units = np.rint(exact / scale.grid).astype(np.int64)
    for _ in who.parties:
        units += noise.draw(source, scale, release.shape, permit=simulated(release.name), part=True)
    return np.asarray(units * scale.grid, np.float64)
