"""What a simulation measures: the model beside a constant, parties alone and all records pooled, and what share of the
exact records each bound clips. None of it is a release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Records
from comity.federation.evaluation.assessment import Baseline, Figure, auc, log_loss
from comity.learn.standardised import Standardised, default_penalty
from comity.methods.averaging.objectives import Objective
from comity.methods.averaging.second_moments import Whitening
from comity.special import softmax

Floats = NDArray[np.float64]

# Own-data scores are averaged over at most this many parties.
MAX_PARTIES = 50
# The encoding scales rows to norm 1; rounding may leave them this much longer.
_ROUNDING = 1 + 1e-9


@dataclass(frozen=True)
class _Score:
    """One model on test records; the last two where it has probabilities of classes."""

    error: float
    log_loss: float | None = None
    auc: float | None = None


def measure_error(objective: Objective, coef: Floats, features: Floats, targets: Floats) -> float:
    """The share of wrong classes, or the mean squared error of a target on [−1, 1]."""
    scores = features @ coef.T
    if objective.kind == "linear":
        return float(np.mean((scores[:, 0] - targets) ** 2))
    chosen = scores.argmax(1) if len(coef) > 1 else (scores[:, 0] > 0).astype(np.int64)
    return float(np.mean(chosen != targets))


def fit_baselines(
    objective: Objective, sets: Sequence[tuple[Floats, Floats]], features: Floats, targets: Floats
) -> list[Baseline]:
    filled = [(x, y) for x, y in sets if len(x)]
    if not filled:
        return []
    everything = np.concatenate([y for _, y in filled])
    alone = [_fit_and_measure(objective, x, y, features, targets) for x, y in filled[:MAX_PARTIES]]
    pooled = _fit_and_measure(objective, np.concatenate([x for x, _ in filled]), everything, features, targets)
    return [
        _constant(objective, everything, targets),
        Baseline.of_parties(
            [one.error for one in alone],
            f"mean of {len(alone)} parties, each alone",
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


def _fit_and_measure(objective: Objective, rows: Floats, seen: Floats, features: Floats, targets: Floats) -> _Score:
    """The same kind of model as anyone without a method would fit it: no bound of the schema counts."""
    columns = Standardised.of(rows)
    fit = objective.fit(columns.with_constant(rows), seen, default_penalty(len(rows)))
    return _measure(
        objective, objective.coefficients(np.atleast_2d(fit.weights)), columns.with_constant(features), targets
    )


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


def _measure(objective: Objective, coef: Floats, features: Floats, targets: Floats) -> _Score:
    error = measure_error(objective, coef, features, targets)
    if objective.kind in ("linear", "svm"):
        return _Score(error)
    scores, labels = features @ coef.T, targets.astype(np.int64)
    if len(coef) == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    shares = np.asarray(softmax(scores, axis=1), np.float64)
    return _Score(error, log_loss(shares, labels), auc(shares[:, 1], labels > 0) if shares.shape[1] == 2 else None)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def measure_long_rows(train: Sequence[Records]) -> Figure:
    longer = [np.linalg.norm(np.nan_to_num(records.features), axis=-1) > _ROUNDING for records in train]
    return Figure("rows clipped", _share(longer), "share of the records that are longer than 1 and shortened to it")


def measure_outside_targets(train: Sequence[Records], low: float, high: float) -> Figure:
    labels = [np.asarray(records.labels, np.float64) for records in train if records.labels is not None]
    outside = [(values < low) | (values > high) for values in labels]
    return Figure("targets clipped", _share(outside), "share of the records whose target lies outside its bounds")


def measure_long_whitened_rows(whitening: Whitening, rows: Sequence[Floats]) -> Figure:
    longer = [np.linalg.norm(whitening.map_rows(one), axis=-1) > _ROUNDING for one in rows]
    return Figure("whitened rows clipped", _share(longer), "share of the records that whitening makes longer than 1")


def measure_long_residuals(
    objective: Objective, weights: Floats, clip: float, rows: Sequence[Floats], targets: Sequence[Floats]
) -> Figure:
    """At `weights`, rows of the margins."""
    longer = []
    for inside, wanted in zip(rows, targets):
        residual = objective.residual(inside @ weights.T, wanted)
        longer.append(np.linalg.norm(residual, axis=-1) > clip * _ROUNDING)
    return Figure("residuals clipped", _share(longer), "share of the records whose part of a gradient is shortened")


def _share(masks: Sequence[NDArray[Any]]) -> float:
    counted = np.concatenate([np.ravel(one) for one in masks]) if masks else np.zeros(0)
    return float(counted.mean()) if counted.size else 0.0
