"""Simulation only: errors of a constant, of parties alone and of all records pooled, by the same kind of model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from comity.federation.baseline import Baseline
from comity.protocols.averaging.losses import Loss

Floats = NDArray[np.float64]

# Own-data scores are averaged over at most this many parties.
SAMPLED = 50


def error_of(loss: Loss, coef: Floats, features: Floats, targets: Floats) -> float:
    """Share of wrong classes, or the mean squared error of a target on [−1, 1]."""
    scores = features @ coef.T
    if loss.kind == "linear":
        return float(np.mean((scores[:, 0] - targets) ** 2))
    found = scores.argmax(1) if len(coef) > 1 else (scores[:, 0] > 0).astype(np.int64)
    return float(np.mean(found != targets))


def baselines(loss: Loss, sets: Sequence[tuple[Floats, Floats]], features: Floats, targets: Floats) -> list[Baseline]:
    filled = [(x, y) for x, y in sets if len(x)]
    if not filled:
        return []
    everything = np.concatenate([y for _, y in filled])
    if loss.kind == "linear":
        constant, said = float(np.mean((everything.mean() - targets) ** 2)), "always the mean target"
    else:
        most = np.bincount(everything.astype(np.int64)).argmax()
        constant, said = float(np.mean(targets != most)), "always the most frequent class"
    alone = [error_of(loss, trained(loss, x, y), features, targets) for x, y in filled[:SAMPLED]]
    pooled = trained(loss, np.concatenate([x for x, _ in filled]), everything)
    return [
        Baseline("constant", constant, note=said),
        Baseline(
            "own data", float(np.mean(alone)), float(np.std(alone)), note=f"mean of {len(alone)} parties, each alone"
        ),
        Baseline("pooled", error_of(loss, pooled, features, targets), note="all records in one place, no privacy"),
    ]


def trained(loss: Loss, features: Floats, targets: Floats) -> Floats:
    """A fit without privacy, penalised as little as the number of records asks for."""
    fit = loss.fit(features, targets, max(1e-6, 1.0 / len(features)))
    return loss.coefficients(np.atleast_2d(fit.weights))
