"""Released classifiers.

The weights of a model are parameters of its constructor: `clone` keeps them, and `fit` changes nothing, because a
released model is fixed. `cross_val_score` scores the released model on each fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from comity.artefacts.artefact import Card
from comity.artefacts.section import Dot, Dots, Section
from comity.data import Encoding
from comity.data.row_products import clip_received, products, softmax_rows
from comity.errors import DataError
from comity.learn.feature_map import FeatureMap
from comity.learn.newton import Floats
from comity.learn.released_model import (
    MAPPED,
    MAX_SHOWN,
    PAGE,
    WEIGHTS,
    ReleasedEstimator,
    StoredModel,
    check_file,
    constant_of,
    encoded_rows,
    has_intercept,
    model_card,
    read_page,
    read_value,
    split_constant,
    write_model,
    write_page,
)
from comity.special import expit

# Prefix of a feature map's arrays in the file.
_MAP: Final = "map."
_DEVIATIONS: Final = "deviations"
# Classes that a sentence names.
_MAX_CLASSES: Final = 6


class FeatureEncoding(Protocol):
    """Turns a frame of raw columns into rows of the kind that a model was trained on."""

    def encode_features(self, frame: pd.DataFrame) -> Floats: ...


class ReleasedClassifier(ReleasedEstimator):
    """An artefact that predicts classes."""

    estimates = "classifier"
    place: ClassVar[str] = "model"
    measure: ClassVar[str] = "share of test records that is predicted wrongly"

    classes: Sequence[Any] | NDArray[Any]
    encoding: FeatureEncoding | None

    @property
    def classes_(self) -> NDArray[Any]:
        labels = list(self.classes)
        if len(set(map(type, labels))) == 1:
            return np.asarray(labels)
        mixed = np.empty(len(labels), object)
        mixed[:] = labels
        return mixed

    def predict_proba(self, X: Any) -> Floats:
        raise NotImplementedError(f"{type(self).__name__} has no probabilities")

    def predict_table(self, rows: Any) -> dict[str, NDArray[Any]]:
        """Columns of a table of predictions: the class of each record, and the probability of each class."""
        shares = zip(self.classes_, self.predict_proba(rows).T)
        return {"predicted": self.predict(rows), **{f"p({label})": share for label, share in shares}}


@dataclass(eq=False, repr=False)
class LinearClassifier(ReleasedClassifier):
    """A linear classifier over encoded rows, or over raw frames if it has the schema's encoding.

    As in scikit-learn, `encode(X) @ coef_.T + intercept_` is `decision_function(X)`, with one row of `coef_` for two
    classes and one for each of more. `encode` returns the matrix that `coef_` is for: the encoded features, or the
    result of a feature map that is not linear.

    Parameters
    ----------
    coef : the weights as released, over encoded rows with their constant: one row per class, (C, D); for two classes
        also one vector, (1, D), for the second one
    classes : the labels, in the order of the rows
    encoding : turns a DataFrame into rows; without one the columns of a DataFrame are the rows' entries
    feature_map : public map from rows to the coordinates of the weights; if weights have one column more than it has
        dimensions, the last is the intercept
    constant : value of the last entry of every row, if it is a constant feature and no encoding says so
    deviations : the standard deviation of the noise in each number of `coef`, where it is known
    """

    kind: ClassVar[str] = "linear"

    coef: ArrayLike
    classes: Sequence[Any] | NDArray[Any]
    encoding: FeatureEncoding | None = None
    feature_map: FeatureMap | None = None
    constant: float | None = None
    deviations: ArrayLike | None = None

    @property
    def weights(self) -> Floats:
        """As released, (C or 1, D): over encoded rows with their constant, or over the coordinates of the feature
        map."""
        coef, count = np.asarray(self.coef, np.float64), len(self.classes)
        if coef.ndim != 2 or count < 2 or len(coef) not in ({1, 2} if count == 2 else {count}):
            raise DataError(
                f"coef must have one row per class, or a single row for two classes; found shape "
                f"{coef.shape} for {count} classes"
            )
        if self.feature_map is not None and coef.shape[1] - self.feature_map.dimensions not in (0, 1):
            raise DataError(
                f"coef must have a column for each of the {self.feature_map.dimensions} dimensions of the feature map, "
                f"and may have one for an intercept; found {coef.shape[1]}"
            )
        return coef

    @property
    def coef_(self) -> Floats:
        """Coefficients of the columns of `encode`, (1, d) for two classes, (C, d) for more."""
        return self._decision()[0]

    @property
    def intercept_(self) -> Floats:
        """(1,) for two classes, (C,) for more."""
        return self._decision()[1]

    @property
    def n_features_in_(self) -> int:
        """Columns of an array that the model takes, without the constant one."""
        return self._width - (self._constant is not None)

    def encode(self, X: Any) -> Floats:
        """The matrix that `coef_` is for, from a frame of raw columns or from encoded rows."""
        rows = self._rows(X)
        if self.feature_map is None or self.feature_map.affine is not None:
            return rows if self._constant is None else rows[:, :-1]
        mapped = self.feature_map(rows)
        return mapped[:, :-1] if self.feature_map.constant else mapped

    def decision_function(self, X: Any) -> Floats:
        """Scores: (n,) in favour of the second of two classes, (n, C) of more."""
        coef = self.weights
        return self._in_shape(self._mapped(X, rowwise=False) @ self._decisive(coef).T, coef)

    def rowwise_scores(self, X: Any) -> Floats:
        """`decision_function` to about ten digits, with weights clipped to a public range. The score of a record does
        not depend on the other records, to the last bit: use it for private records and a model that somebody else
        sent."""
        coef = clip_received(self.weights)
        return self._in_shape(products(self._mapped(X, rowwise=True), self._decisive(coef)), coef)

    def _mapped(self, X: Any, *, rowwise: bool) -> Floats:
        """Rows in the coordinates of the weights."""
        rows = self._rows(X)
        if self.feature_map is not None:
            rows = self.feature_map(rows, rowwise=rowwise)
            if self.weights.shape[1] > rows.shape[1]:
                rows = np.column_stack([rows, np.ones(len(rows))])
        return rows

    def split_rows(self, X: Any) -> tuple[Floats, Floats]:
        """Rows in the coordinates of the weights, without the entry that an intercept multiplies; and that entry, (n,),
        zeros if the model can't have an intercept."""
        rows = self._mapped(X, rowwise=False)
        if self._ends_in_intercept:
            return rows[:, :-1], rows[:, -1]
        return rows, np.full(len(rows), 0.0 if self.feature_map is None else 1.0)

    def shift(self, share: float, weights: Floats, intercept: Floats) -> LinearClassifier:
        """The model whose scores are `share` times these, plus those of `weights` (rows of `coef`, p) and `intercept`
        (rows of `coef`,) over what `split_rows` returns."""
        before = share * self.weights
        if self._ends_in_intercept:
            return replace(self, coef=before + np.column_stack([weights, intercept]))
        after = before + weights
        return replace(self, coef=after if self.feature_map is None else np.column_stack([after, intercept]))

    @property
    def _ends_in_intercept(self) -> bool:
        """Whether the last weight is an intercept's."""
        through = self.feature_map
        if through is None:
            return has_intercept(self.constant, self.encoding)
        return through.constant or self.weights.shape[1] > through.dimensions

    @staticmethod
    def _decisive(coef: Floats) -> Floats:
        """One row for two classes, the difference of theirs; else a row for each class."""
        return coef[1:] - coef[:1] if len(coef) == 2 else coef

    @staticmethod
    def _in_shape(scores: Floats, coef: Floats) -> Floats:
        return np.asarray(scores if len(coef) > 2 else scores[:, 0], np.float64)

    @property
    def _width(self) -> int:
        """Entries of an encoded row, the constant one included."""
        return int(self.weights.shape[1]) if self.feature_map is None else self.feature_map.features

    @property
    def _constant(self) -> float | None:
        return constant_of(self.constant, self.encoding)

    def _decision(self) -> tuple[Floats, Floats]:
        """Coefficients and intercepts of the decision function: for two classes one score, for the second."""
        weights, through = self._decisive(self.weights), self.feature_map
        if through is None:
            return split_constant(weights, self._constant)
        # A column beyond the map's dimensions is for a one.
        coordinates, beside = weights[:, : through.dimensions], weights[:, through.dimensions :].sum(axis=1)
        affine = through.affine
        if affine is None:
            coef, intercept = split_constant(coordinates, 1.0 if through.constant else None)
            return coef, intercept + beside
        matrix, shift = affine
        coef, intercept = split_constant(coordinates @ matrix.T, self._constant)
        return coef, intercept + coordinates @ shift + beside

    def _rows(self, X: Any) -> Floats:
        return encoded_rows(X, self._width, self._constant, self.encoding)

    def predict(self, X: Any) -> NDArray[Any]:
        scores = self.decision_function(X)
        index = scores.argmax(1) if scores.ndim == 2 else (scores > 0).astype(np.int64)
        return np.asarray(self.classes_[index])

    def predict_proba(self, X: Any) -> Floats:
        return self._shares(self.decision_function(X))

    def rowwise(self) -> RowwiseClassifier:
        """The form of the model that is evaluated on private records."""
        return RowwiseClassifier(self)

    @staticmethod
    def _shares(scores: Floats) -> Floats:
        if scores.ndim == 2:
            return softmax_rows(scores)
        return np.column_stack([expit(-scores), expit(scores)])

    def predict_table_from_scores(self, scores: Floats) -> dict[str, NDArray[Any]]:
        """`predict_table` from scores (n,) that were added up elsewhere."""
        return LinearClassifier([[1.0]], self.classes).predict_table(scores[:, None])

    def save(self, folder: Path) -> None:
        mapped = {} if self.feature_map is None else self.feature_map.arrays()
        arrays: dict[str, Any] = {"coef": self.weights} | {_MAP + name: one for name, one in mapped.items()}
        arrays |= {} if self.deviations is None else {_DEVIATIONS: np.asarray(self.deviations, np.float64)}
        kind = "linear" if self.feature_map is None else MAPPED
        write_model(folder, kind, self.classes, arrays, encoding=self.encoding, constant=self.constant)

    @classmethod
    def load(cls, folder: Path) -> Self:
        stored = StoredModel.read(folder)
        feature_map = _feature_map(stored.arrays, folder / WEIGHTS) if stored.page["kind"] == MAPPED else None
        deviations = _read_deviations(stored, folder / WEIGHTS)
        model = cls(stored.coef, stored.page["classes"], stored.encoding, feature_map, stored.constant, deviations)
        stored.check(lambda: model.coef_, lambda: model._width)
        return model

    def card(self) -> Card:
        labels = [str(label) for label in self.classes]
        shown = ", ".join(labels[:_MAX_CLASSES])
        shown += f" and {len(labels) - _MAX_CLASSES} more" if len(labels) > _MAX_CLASSES else ""
        target, columns = "classes", f"{self.n_features_in_} features"
        if isinstance(self.encoding, Encoding):
            if self.encoding.schema.target is not None:
                target = self.encoding.schema.target.name
            columns = f"{len(self.encoding.schema.columns)} columns ({columns} after encoding)"
        return model_card(f"A linear classifier of {target} ({shown}) from {columns}", self.encoding)

    def section(self, noise: float | None = None) -> Section:
        strongest = find_strongest(self)
        if not strongest:
            return Section("The model")
        two = len(self.classes) == 2
        axis = f"weight in favour of {self.classes[1]}" if two else "weight in favour of the class"
        deviation = weight_deviation(self, noise)
        known = (
            ()
            if deviation is not None or strongest[0].deviation is not None
            else ("How far noise moves a single weight is not known: small ones may be noise.",)
        )
        return Section("The model", known, plots=(Dots("Strongest weights of the model", axis, strongest, deviation),))


class RowwiseClassifier:
    """The probabilities of a linear classifier, record by record (`LinearClassifier.rowwise_scores`)."""

    def __init__(self, model: LinearClassifier) -> None:
        self._model = model

    def predict_proba(self, X: Any) -> Floats:
        return self._model._shares(self._model.rowwise_scores(X))

    def predict(self, X: Any) -> NDArray[Any]:
        return np.asarray(self._model.classes_[self.predict_proba(X).argmax(1)])


@dataclass(eq=False, repr=False)
class ConstantClassifier(ReleasedClassifier):
    """The same answer for every record: the likeliest class, with `shares` as probabilities.

    It needs only public or released shares. A learned model has to be better.
    """

    kind: ClassVar[str] = "constant"
    encoding = None

    shares: ArrayLike
    classes: Sequence[Any] | NDArray[Any]

    @property
    def shares_(self) -> Floats:
        shares, count = np.asarray(self.shares, np.float64), len(self.classes)
        if shares.shape != (count,) or not (shares >= 0).all() or not abs(shares.sum() - 1) <= 1e-9:
            raise DataError(f"shares must be {count} numbers >= 0 that sum to 1, found {shares.tolist()}")
        return shares

    def predict(self, X: Any) -> NDArray[Any]:
        return np.repeat(self.classes_[[int(self.shares_.argmax())]], len(X))

    def predict_proba(self, X: Any) -> Floats:
        return np.tile(self.shares_, (len(X), 1))

    def predict_table_from_scores(self, scores: Floats) -> dict[str, NDArray[Any]]:
        """The answer does not depend on a score."""
        return self.predict_table(scores)

    def save(self, folder: Path) -> None:
        write_page(folder, self.kind, self.classes, shares=self.shares_.tolist())

    @classmethod
    def load(cls, folder: Path) -> Self:
        path, page = folder / PAGE, read_page(folder)
        shares = read_value(page, "shares", list, path)
        if any(isinstance(share, bool) or not isinstance(share, int | float) for share in shares):
            raise DataError(f"{path}: shares must be numbers, found {shares}; fetch the model again")
        model = cls(shares, page["classes"])
        check_file(path, lambda: model.shares_)
        return model

    def card(self) -> Card:
        shares = ", ".join(f"{label} {share:.3f}" for label, share in zip(self.classes, self.shares_))
        return model_card(f"The same answer for every record ({shares})", None)

    def section(self, noise: float | None = None) -> Section:
        return Section("The model")


def _feature_map(arrays: dict[str, NDArray[Any]], path: Path) -> FeatureMap:
    own = {name.removeprefix(_MAP): one for name, one in arrays.items() if name.startswith(_MAP)}
    try:
        return FeatureMap.from_arrays(own)
    except (DataError, ValueError, TypeError, IndexError) as error:
        raise DataError(f"{path}: the feature map can't be used ({error}); fetch the model again") from error


def find_strongest(model: LinearClassifier) -> tuple[Dot, ...]:
    """The largest weights with the names of their features. There are none without an encoding, or with a feature map
    that is not linear."""
    if not isinstance(model.encoding, Encoding):
        return ()
    coef, names = _by_feature(model), model.encoding.names
    if coef is None:
        return ()
    # The constant entry of a row is no feature.
    coef = coef * np.array([name != "(intercept)" for name in names])
    spread = None
    if model.deviations is not None and coef.shape == np.shape(model.deviations):
        spread = np.asarray(model.deviations, np.float64)
    # What noise explains comes last.
    hidden = np.zeros(coef.shape, np.bool_) if spread is None else np.abs(coef) <= 2 * spread
    order = np.lexsort((-np.abs(coef).ravel(), hidden.ravel()))[:MAX_SHOWN]
    dots = []
    for place in order:
        row, column = divmod(int(place), coef.shape[1])
        prefix = "" if len(coef) == 1 else f"{model.classes[row]}: "
        deviation = None if spread is None else float(spread[row, column])
        dots.append(Dot(prefix + names[column], float(coef[row, column]), deviation))
    return tuple(dots)


def _read_deviations(stored: StoredModel, path: Path) -> Floats | None:
    found = stored.arrays.get(_DEVIATIONS)
    if found is None:
        return None
    if found.shape != stored.coef.shape or found.dtype != np.float64 or not (np.isfinite(found) & (found >= 0)).all():
        raise DataError(f"{path}: deviations must be one finite number >= 0 for each weight; fetch the model again")
    return found


def _by_feature(model: LinearClassifier) -> NDArray[np.float64] | None:
    """Weights of encoded features: one row for two classes, else a row for each class."""
    coef, through = model.weights, model.feature_map
    if through is not None:
        if through.phase is not None or through.normalise:
            return None
        linear = through.matrix if through.whitening is None else through.matrix @ through.whitening
        coef = coef[:, : linear.shape[1]] @ linear.T
    return LinearClassifier._decisive(coef)


def weight_deviation(model: LinearClassifier, noise: float | None) -> float | None:
    """Standard deviation of one shown weight, given that of a released number."""
    if noise is None or model.feature_map is not None:
        return None
    rows = len(model.weights)
    if rows == 2:
        return noise * sqrt(2)
    # Of C rows that sum to zero, C - 1 orthonormal combinations carry the noise.
    return noise * (1.0 if rows == 1 else sqrt(1 - 1 / rows))
