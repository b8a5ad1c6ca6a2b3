"""Simulation only: errors, log losses and AUCs of a constant, of parties alone and of all records pooled, by the same
kind of model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from comity.federation.assessment import auc, log_loss
from comity.federation.baseline import Baseline
from comity.methods.averaging.objectives import Objective

Floats = NDArray[np.float64]

# Own-data scores are averaged over at most this many parties.
SAMPLED = 50


@dataclass(frozen=True)
class _Scored:
    """One model on test records; the last two where it gives probabilities of classes."""

    error: float
    log_loss: float | None = None
    auc: float | None = None


def error_of(objective: Objective, coef: Floats, features: Floats, targets: Floats) -> float:
    """Share of wrong classes, or the mean squared error of a target on [−1, 1]."""
    scores = features @ coef.T
    if objective.kind == "linear":
        return float(np.mean((scores[:, 0] - targets) ** 2))
    found = scores.argmax(1) if len(coef) > 1 else (scores[:, 0] > 0).astype(np.int64)
    return float(np.mean(found != targets))


def baselines(
    objective: Objective, sets: Sequence[tuple[Floats, Floats]], features: Floats, targets: Floats
) -> list[Baseline]:
    filled = [(x, y) for x, y in sets if len(x)]
    if not filled:
        return []
    everything = np.concatenate([y for _, y in filled])
    alone = [_scored(objective, trained(objective, x, y), features, targets) for x, y in filled[:SAMPLED]]
    errors = [one.error for one in alone]
    pooled = _scored(
        objective, trained(objective, np.concatenate([x for x, _ in filled]), everything), features, targets
    )
    return [
        _constant(objective, everything, targets),
        Baseline(
            "own data",
            float(np.mean(errors)),
            float(np.std(errors)),
            note=f"mean of {len(alone)} parties, each alone",
            log_loss=_mean([one.log_loss for one in alone]),
            auc=_mean([one.auc for one in alone]),
        ),
        Baseline(
            "pooled",
            pooled.error,
            note="all records in one place, no privacy",
            log_loss=pooled.log_loss,
            auc=pooled.auc,
        ),
    ]


def trained(objective: Objective, features: Floats, targets: Floats) -> Floats:
    """A fit without privacy, penalised as little as the number of records asks for."""
    fit = objective.fit(features, targets, max(1e-6, 1.0 / len(features)))
    return objective.coefficients(np.atleast_2d(fit.weights))


def _constant(objective: Objective, seen: Floats, targets: Floats) -> Baseline:
    if objective.kind == "linear":
        error = float(np.mean((seen.mean() - targets) ** 2))
        return Baseline("constant", error, note="always the mean target")
    known, asked = seen.astype(np.int64), targets.astype(np.int64)
    shares = np.bincount(known, minlength=int(max(known.max(), asked.max(initial=0))) + 1) / len(known)
    return Baseline(
        "constant",
        float(np.mean(asked != shares.argmax())),
        note="always the most frequent class",
        log_loss=log_loss(np.tile(shares, (len(asked), 1)), asked) if objective.kind != "svm" else None,
    )


def _scored(objective: Objective, coef: Floats, features: Floats, targets: Floats) -> _Scored:
    error = error_of(objective, coef, features, targets)
    if objective.kind in ("linear", "svm"):
        return _Scored(error)
    scores, labels = features @ coef.T, targets.astype(np.int64)
    if len(coef) == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    shares = np.asarray(softmax(scores, axis=1), np.float64)
    return _Scored(error, log_loss(shares, labels), auc(shares[:, 1], labels > 0) if shares.shape[1] == 2 else None)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
