"""Simulation only: how good a model is beside a constant, parties alone and all records pooled, and what share of the
exact records each bound clips. None of it is a release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from comity.data import Records
from comity.federation.declare.consortium import Consortium
from comity.federation.evaluation.assessment import Baseline, Figure, auc, log_loss
from comity.learn.record_sum import in_unit_ball
from comity.methods.averaging import descent
from comity.methods.averaging.moment_blocks import moments
from comity.methods.averaging.objectives import Objective
from comity.methods.averaging.whitening import Whitening

if TYPE_CHECKING:
    from comity.methods.averaging.method import AveragingProtocol

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


# Rows that an encoding scales to norm 1 may be as much longer by rounding.
_LONGER = 1 + 1e-9


def measure_clipping(
    method: AveragingProtocol, opened: Mapping[str, Any], train: Sequence[Records], consortium: Consortium
) -> tuple[Figure, ...]:
    found = [rows_cut(train)]
    if method.model == "linear":
        found.append(targets_cut(train, method.low, method.high))
    if method.way(consortium) == "gradient":
        weights, targets = np.asarray(opened["model"], np.float64), [method.targets(_labels(one)) for one in train]
        if method.looks:
            found.append(whitened_rows_cut(method, train, consortium))
        found.append(residuals_cut(method.objective, weights, method.cut(consortium), train, targets))
    return tuple(found)


def rows_cut(train: Sequence[Records]) -> Figure:
    longer = [np.linalg.norm(np.nan_to_num(records.features), axis=-1) > _LONGER for records in train]
    return Figure("rows cut", _share(longer), "share of the records that are longer than 1 and shortened to it")


def targets_cut(train: Sequence[Records], low: float, high: float) -> Figure:
    labels = [np.asarray(records.labels, np.float64) for records in train if records.labels is not None]
    outside = [(values < low) | (values > high) for values in labels]
    return Figure("targets cut", _share(outside), "share of the records whose target lies outside its bounds")


def whitened_rows_cut(method: AveragingProtocol, train: Sequence[Records], consortium: Consortium) -> Figure:
    """Whitened as they would be had the second moments been opened without noise: what was opened is not kept."""
    rows = [in_unit_ball(records.features) for records in train]
    white, seen = Whitening.none(method.features), rows
    for look in range(method.looks):
        exact = np.sum([moments(one, method.blocks) for one in seen], axis=0)
        white = descent.whitened(method, white, look, exact, sum(map(len, rows)), consortium)
        seen = [white.inside(one) for one in rows]
    longer = [np.linalg.norm(white.of(one), axis=-1) > _LONGER for one in rows]
    return Figure("whitened rows cut", _share(longer), "share of the records that whitening makes longer than 1")


def residuals_cut(
    objective: Objective, weights: Floats, clip: float, train: Sequence[Records], targets: Sequence[Floats]
) -> Figure:
    """At `weights`, rows of the margins."""
    found = []
    for records, wanted in zip(train, targets):
        residual = objective.residual(in_unit_ball(records.features) @ weights.T, wanted)
        found.append(np.linalg.norm(residual, axis=-1) > clip * _LONGER)
    return Figure("residuals cut", _share(found), "share of the records whose part of a gradient is shortened")


def _share(cut: Sequence[NDArray[Any]]) -> float:
    counted = np.concatenate([np.ravel(one) for one in cut]) if cut else np.zeros(0)
    return float(counted.mean()) if counted.size else 0.0


def _labels(records: Records) -> NDArray[Any]:
    assert records.labels is not None
    return records.labels
