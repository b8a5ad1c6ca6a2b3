"""Records to forecast with: as many as a study declares, made from a public sample or from the schema alone.

Rows of the sample are drawn with replacement and their targets are drawn again, from a linear model of the sample whose
sharpness makes it err as often as a linear model would on any number of records. So a study over the made records has
its own amount of noise, the sample's features, and a target that is as hard to learn as the sample's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Bounded, Categorical, Classes, Column, Date, Encoding, Numeric, Ordinal, Schema
from comity.entropy import Stream
from comity.errors import DataError, StudyError

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

MIN_SAMPLE = 50
"""Fewer records than this say too little about a target."""
MAX_SAMPLE = 5000
"""A linear model of so many records is as good as one of more, for this purpose."""
PENALTIES = (0.03, 0.3, 3.0, 30.0, 300.0)
SHARPEST, FLATTEST = 2.0, 0.5
"""The range of the factor on a model's scores. Limited after a sketch on HAR with two classes, whose cross-validated
error of 0 gave a factor of 10.6 and too good a forecast; no other values were tried."""
GENERATED_ERROR = 0.2
"""How often the best model errs on generated records. Not tuned: between an easy target and a hard one."""
MATCHING_ROUNDS = 50
"""Shares are then off by less than what a sample tells. A limit of work, not tuned."""
NEAR = 20
"""A residual is that of a row at most so many places away in the order of expected values. Not tuned."""
_FOLDS = 5


@dataclass(frozen=True, eq=False)
class Population:
    """Rows to draw from, and what each row's target may be.

    `chances` has a row's probability of each class. For a number, `means` has its expected value and `residuals` what
    is added to it.
    """

    schema: Schema
    rows: pd.DataFrame
    basis: str
    chances: Floats | None = None
    means: Floats | None = None
    residuals: Floats | None = None

    def draw(self, count: int, stream: Stream) -> pd.DataFrame:
        """So many records, with the columns of the schema."""
        target = self.schema.target
        assert target is not None
        places = stream.integers(len(self.rows), (count,))
        frame = self.rows.iloc[places].reset_index(drop=True)
        if self.chances is not None:
            assert isinstance(target, Classes)
            below = np.cumsum(self.chances[places], axis=1) < stream.uniform((count,))[:, None]
            drawn = np.minimum(below.sum(axis=1), len(target.values) - 1)
            values: Any = np.asarray(target.values, object)[drawn]
        else:
            assert isinstance(target, Bounded) and self.means is not None and self.residuals is not None
            values = np.clip(self.means[places] + self._draw_residuals(places, stream), target.low, target.high)
        named = {} if self.schema.identifier is None else {self.schema.identifier: [f"{i:09d}" for i in range(count)]}
        return frame.assign(**{target.name: values, **named})

    def _draw_residuals(self, places: NDArray[np.int64], stream: Stream) -> Floats:
        """Of rows whose expected value is next to that of these rows: spread and sign of a residual depend on it, above
        all near a bound of the target."""
        assert self.means is not None and self.residuals is not None
        order = np.argsort(self.means, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        near = rank[places] + stream.integers(2 * NEAR + 1, (len(places),)) - NEAR
        return np.asarray(self.residuals[order[np.clip(near, 0, len(order) - 1)]], np.float64)


def from_sample(schema: Schema, sample: pd.DataFrame, where: str) -> Population:
    """A population like a public sample."""
    if schema.target is None:
        raise StudyError(
            f"{where}: a forecast is of a model's error, and the schema has no [target]; add one to it", key="target"
        )
    if len(sample) < MIN_SAMPLE:
        raise DataError(f"{where}: a forecast needs at least {MIN_SAMPLE} public records, found {len(sample)}")
    kept = Stream.public("forecast sample", where).permutation(len(sample))[:MAX_SAMPLE]
    rows = sample.iloc[kept].reset_index(drop=True)
    records = _encoding(schema).encode(rows, where=where).records
    assert records.labels is not None
    features = _standardised(records.features)
    basis = f"{len(rows):,} public records"
    if isinstance(schema.target, Classes):
        labels = np.asarray(records.labels, np.int64)
        return Population(schema, rows, basis, chances=_class_chances(features, labels, len(schema.target.values)))
    target = np.clip(rows[schema.target.name].to_numpy(np.float64), schema.target.low, schema.target.high)
    means, residuals = _regression(features, target)
    return Population(schema, rows, basis, means=means, residuals=residuals)


def from_schema(schema: Schema) -> Population:
    """A population of generated records: columns are independent and uniform, and a random linear model of them gives
    the target, so sharply that it errs on one record in five."""
    import pandas as pd

    if not isinstance(schema.target, Classes):
        raise StudyError(
            "a forecast from generated records is for classes; give a public sample with --sample", key="target"
        )
    stream, count = Stream.public("forecast", schema.digest()), 2000
    columns = {column.name: _uniform(column, count, stream) for column in schema.columns}
    target = schema.target
    rows = pd.DataFrame({**columns, target.name: np.resize(np.asarray(target.values, object), count)})
    features = _standardised(_encoding(schema).encode(rows, where="generated records").records.features)
    scores = features @ stream.normal((features.shape[1], len(target.values)))
    return Population(schema, rows, "generated records", chances=_sharpened(scores, GENERATED_ERROR, 1e-3, 1e3))


def _uniform(column: Column, count: int, stream: Stream) -> Any:
    match column:
        case Categorical() | Ordinal():
            return np.asarray(column.values, object)[stream.integers(len(column.values), (count,))]
        case Date():
            steps = stream.integers(column.steps + 1, (count,)).astype(np.float64)
            return column.days_after(steps, np.zeros(count, np.bool_))
        case Numeric():
            drawn = column.low + (column.high - column.low) * stream.uniform((count,))
            return np.round(drawn) if column.integer else drawn


def _encoding(schema: Schema) -> Encoding:
    # A forecast matches no people: a sample needs no identifier.
    return Encoding(replace(schema, identifier=None), scaling="symmetric", rows="scaled", intercept=False, bins=True)


def _standardised(features: Floats) -> Floats:
    spread = features.std(axis=0)
    return np.asarray((features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0), np.float64)


def _class_chances(features: Floats, labels: NDArray[np.int64], classes: int) -> Floats:
    """Each row's probability of each class: a logistic model of the sample, as sharp as its error on new records says.

    The error of a fit on n records falls about as e + c/n, so that of a fit on any number is estimated by
    2·e(n) − e(n/2), where both are measured by cross-validation.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import KFold, cross_val_predict

    present = np.unique(labels)
    if len(present) == 1:
        return np.asarray(np.eye(classes)[labels], np.float64)
    folds = KFold(_FOLDS, shuffle=True, random_state=0)

    def chances(strength: float) -> Floats:
        model = LogisticRegression(C=strength, max_iter=300)
        return np.asarray(cross_val_predict(model, features, labels, cv=folds, method="predict_proba"), np.float64)

    def log_loss(found: Floats) -> float:
        right = found[np.arange(len(labels)), np.searchsorted(present, labels)]
        return float(-np.mean(np.log(np.clip(right, 1e-6, 1.0))))

    scaled = [strength / features.shape[1] for strength in PENALTIES]
    best = min(scaled, key=lambda strength: log_loss(chances(strength)))
    model = LogisticRegression(C=best, max_iter=300)
    errors = []
    for count in (len(labels), len(labels) // 2):
        found = cross_val_predict(model, features[:count], labels[:count], cv=folds)
        errors.append(float(np.mean(found != labels[:count])))
    limit = errors[0] - max(0.0, errors[1] - errors[0])
    scores = model.fit(features, labels).decision_function(features)
    whole = np.full((len(labels), classes), -np.inf)
    whole[:, present] = np.stack([np.zeros_like(scores), scores], axis=1) if scores.ndim == 1 else scores
    return _sharpened(whole, limit, FLATTEST, SHARPEST, np.bincount(labels, minlength=classes) / len(labels))


def _sharpened(scores: Floats, error: float, flattest: float, sharpest: float, shares: Floats | None = None) -> Floats:
    """Class probabilities softmax(factor·scores + shift) whose most likely class is wrong as often as `error`; the
    shift gives the classes these shares on average, if any."""
    from scipy.special import softmax

    for _ in range(30):
        factor = (flattest * sharpest) ** 0.5
        found = np.asarray(softmax(factor * scores, axis=1), np.float64)
        if shares is not None:
            found = _match_shares(found, shares)
        if np.mean(1 - found.max(axis=1)) > error:
            flattest = factor
        else:
            sharpest = factor
    return found


def _match_shares(chances: Floats, shares: Floats) -> Floats:
    """Chances moved by one factor for each class until their means are these shares. Sharper scores alone would make
    frequent classes more frequent."""
    for _ in range(MATCHING_ROUNDS):
        mean = chances.mean(axis=0)
        chances = chances * np.where(mean > 0, shares / np.where(mean > 0, mean, 1.0), 0.0)
        chances = chances / chances.sum(axis=1, keepdims=True)
    return chances


def _regression(features: Floats, target: Floats) -> tuple[Floats, Floats]:
    """Means and residuals of a ridge regression that was cross-validated."""
    from sklearn.linear_model import RidgeCV
    from sklearn.model_selection import KFold, cross_val_predict

    model = RidgeCV(alphas=[1.0, 10.0, 100.0, 1000.0])
    found = cross_val_predict(model, features, target, cv=KFold(_FOLDS, shuffle=True, random_state=0))
    means = np.asarray(model.fit(features, target).predict(features), np.float64)
    return means, np.asarray(target - found, np.float64)
