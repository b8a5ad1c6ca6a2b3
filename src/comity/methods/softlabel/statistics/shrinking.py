"""Noisy moments brought to what they are likely to be: the noisier they are, the less of them is believed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.learn.feature_map import FeatureMap

Floats = NDArray[np.float64]


def likely_squares(found: FeatureMap, kept: int, signal: float, classes: int) -> Floats:
    """A public guess (kept + 1) at the square of each moment: the largest signal, by each direction's share of the
    variance of the `kept` directions that come first; the constant last.

    Labels are mostly told by directions in which public rows differ much; in the others a large moment is noise. The
    constant's moment says how frequent the classes are, and may be as large as any. As noise grows it is therefore the
    last to be given up: a model of little but noise falls back on the class that the noisy frequencies name.
    """
    last = found.matrix if found.whitening is None else found.whitening
    variances = 1 / (last[:, :kept] ** 2).sum(axis=0)
    shares = np.append(variances / variances.sum(), 1.0)
    return np.asarray(signal**2 / (classes - 1) * shares, np.float64)


def shrunk(moments: Floats, likely: Floats, deviation: float) -> Floats:
    """Posterior means under independent normal priors with these squares, and noise of this deviation."""
    return np.asarray(moments * likely / (likely + deviation**2), np.float64)


def towards_frequencies(moments: Floats, deviation: float) -> Floats:
    """Moments whose directions, all columns but the constant's, are no longer than they stand out from their noise.

    k numbers of noise alone have k·deviation² for their squared length on average. What the directions have beyond it
    is signal, and they keep that share of themselves (James and Stein's rule): none where they are as short as noise,
    and the class frequencies are left. Labels that public directions tell little about need it, where classes are so
    unequal that a slope of noise costs more than none.
    """
    directions = moments[:, :-1]
    square = float((directions**2).sum())
    kept = max(0.0, 1 - directions.size * deviation**2 / square) if square > 0 else 0.0
    return np.concatenate([kept * directions, moments[:, -1:]], axis=1)
