"""What a linear model's weights say of single features, for whoever reads about the model."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from comity.artefacts.section import Dot
from comity.data import Encoding

if TYPE_CHECKING:
    from comity.learn.released.classifiers import LinearClassifier
    from comity.learn.released.regressor import LinearRegressor

# More weights than a reader takes in; all of them are in the model's file.
SHOWN = 12


def strongest(model: LinearClassifier) -> tuple[Dot, ...]:
    """The largest weights by the names of their features; none where names are unknown, or where a feature map leaves
    no weight for each of them."""
    if not isinstance(model.encoding, Encoding):
        return ()
    coef, names = _by_feature(model), model.encoding.names
    if coef is None:
        return ()
    order = np.argsort(-np.abs(coef), axis=None)[:SHOWN]
    found = []
    for place in order:
        row, column = divmod(int(place), coef.shape[1])
        prefix = "" if len(coef) == 1 else f"{model.classes[row]}: "
        found.append(Dot(prefix + names[column], float(coef[row, column])))
    return tuple(found)


def _by_feature(model: LinearClassifier) -> NDArray[np.float64] | None:
    """Weights of encoded features: one row for two classes, whose difference is what decides; else a row for each."""
    coef, through = model.weights, model.feature_map
    if through is not None:
        if through.phase is not None or through.normalise:
            return None
        linear = through.matrix if through.whitening is None else through.matrix @ through.whitening
        coef = coef[:, : linear.shape[1]] @ linear.T
    return coef[1:] - coef[:1] if len(coef) == 2 else coef


def noise_of_weights(model: LinearClassifier, noise: float | None) -> float | None:
    """Standard deviation of one shown weight, from that of a released number."""
    if noise is None or model.feature_map is not None:
        return None
    rows = len(model.weights)
    if rows == 2:
        return noise * sqrt(2)
    # Of C rows that sum to zero, C - 1 orthonormal combinations carry the noise.
    return noise * (1.0 if rows == 1 else sqrt(1 - 1 / rows))


def coefficients(model: LinearRegressor) -> tuple[tuple[str, float, float | None], ...]:
    """The largest coefficients of a regression by the names of their features, with their standard errors."""
    if not isinstance(model.encoding, Encoding):
        return ()
    coef, names, errors = model.coef_, model.encoding.names, model.errors_
    order = np.argsort(-np.abs(coef))[:SHOWN]
    return tuple((names[at], float(coef[at]), None if errors is None else float(errors[at])) for at in order)
