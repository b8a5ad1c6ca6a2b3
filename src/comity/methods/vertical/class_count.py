"""The constant: how many common rows are of each class, counted with noise by the label's holder alone.

Where public figures say that noise hides every column, a model of columns is a constant at best, and its intercept is
one number. Counting the classes alone gives that number the whole loss: the rest of the moments would take it for sums
that say nothing. One party holds all that is counted, so no product is computed, no other party pays, and the noise is
that of one trusted curator whoever colludes.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri_exp

from comity.errors import Refused
from comity.federation.declare.bounds import Counts
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.declare.protection import Noised
from comity.federation.declare.release import Array, Release
from comity.federation.owner.site import Site
from comity.methods.by_columns.common_rows import common_rows
from comity.methods.vertical.design import Design
from comity.privacy.mechanisms import Noise

Floats = NDArray[np.float64]

_NODES = (np.arange(512) + 0.5) / 512
_BLOCK = 1 << 16


def release_count(design: Design, noise: Noise, max_rows: int) -> Release:
    """The moments that are left: how many rows are of the first and of the second class. A replaced row leaves one cell
    and enters the other."""
    return Release(
        name="moments",
        source=(design.label_at,),
        to=COORDINATOR,
        protection=Noised(noise),
        form=Array((2,), "<i8"),
        bound=Counts(weights=(1,), replaced=True, records=max_rows),
    )


def count_rows(design: Design, site: Site) -> Floats:
    """Both counts over the common rows, at the label's holder."""
    if site.party != design.label_at:
        raise Refused(f"{design.label_at} holds the label, and counts it", code="undeclared")
    rows, label = common_rows(site), design.label.start - design.places(site.party).start
    if not len(rows):
        raise Refused("there are no common rows to count", code="stopped")
    found = np.zeros(2)
    for start in range(0, len(rows), _BLOCK):
        columns = design.matrix(rows.read(slice(start, start + _BLOCK)), site.party)
        found += count_classes(columns[:, label])
    return found


def count_classes(label: Floats) -> Floats:
    """Rows of the first and of the second class, by the entries of the label's column."""
    second = float(np.count_nonzero(label > 0))
    return np.array([len(label) - second, second])


def estimate_share(counts: Floats, deviation: float, rows: int) -> float:
    """The second class's share of so many rows, from noisy counts of both."""
    return share_from_mean(float(counts[1] - counts[0]) / rows, sqrt(2) * deviation / rows, rows)[0]


def share_from_mean(mean: float, deviation: float, rows: int) -> tuple[float, float]:
    """The second class's share of so many rows, from a noisy mean of labels ±1: mean and deviation of what it leaves
    possible, where all shares were equally likely before. The share is on the same side of one half as the mean, and
    never 0 or 1."""
    spread = max(deviation / 2, 0.5 / rows)
    found = 0.5 + mean / 2
    # Quantiles of a normal around `found`, within 0 and 1, in logarithms: noise may leave `found` far outside.
    flipped = found > 0.5
    centre = 1 - found if flipped else found
    low, high = -centre / spread, (1 - centre) / spread
    # By the upper tail, which keeps its digits where both ends lie far above zero.
    above, beyond = float(log_ndtr(-low)), float(log_ndtr(-high))
    quantiles = -ndtri_exp(above + np.log1p(_NODES * np.expm1(beyond - above)))
    shares = centre + spread * quantiles
    share = min(1 - 0.5 / rows, max(0.5 / rows, float(np.mean(shares))))
    return 1 - share if flipped else share, float(np.std(shares))


def constant_coefficients(design: Design, share: float) -> Floats:
    """Coefficients of encoded rows of which the intercept alone is not zero: the logarithm of the odds."""
    out = np.zeros(design.encoding.width)
    out[-1] = log(share / (1 - share))
    return out
