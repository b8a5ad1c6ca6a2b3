"""Released models: classifiers that scikit-learn takes for fitted ones, made of published numbers alone.

A model holds its weights as constructor parameters, so that `clone` keeps them, and `fit` changes nothing:
what a study released is fixed, and `cross_val_score` and its like score the released model on each fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from scipy.special import softmax as normalise

from comity.artefacts.artefact import Card
from comity.artefacts.section import Dots, Section
from comity.data import Encoding
from comity.errors import DataError
from comity.learn.fitting.newton import Floats
from comity.learn.released import model_page
from comity.learn.released.estimator import ReleasedEstimator
from comity.learn.released.feature_map import FeatureMap
from comity.learn.released.weights import noise_of_weights, strongest

# A reader that knows no maps must not take the weights for those of plain rows: it is another kind of page.
MAPPED: Final = "linear after a feature map"
# Before the names of a feature map's arrays.
_MAP: Final = "map."
# More classes than a sentence holds.
_CLASSES: Final = 6


class FeatureEncoding(Protocol):
    """What turns a frame of raw columns into the rows that a model was trained on."""

    def encode_features(self, frame: pd.DataFrame) -> Floats: ...


class _Released(ReleasedEstimator):
    """Common face of released models: artefacts that predict classes."""

    estimates = "classifier"
    place: ClassVar[str] = "model"
    measure: ClassVar[str] = "share of test records that is predicted wrongly"
    """What an error of such a model counts."""

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

    def predicted(self, rows: Any) -> dict[str, NDArray[Any]]:
        """Columns of a table of predictions: the class of each record, and the probability of each class."""
        shares = zip(self.classes_, self.predict_proba(rows).T)
        return {"predicted": self.predict(rows), **{f"p({label})": share for label, share in shares}}


class LinearClassifier(_Released):
    """A linear classifier over encoded rows, or over raw frames where it carries the schema's encoding.

    Parameters
    ----------
    coef : one row of weights per class, (C, d); for two classes also one vector, (1, d), for the second one
    classes : the labels, in the order of the rows
    encoding : how a DataFrame becomes rows; without one a DataFrame's columns are taken as they stand
    feature_map : public map from rows to the coordinates that the weights are for; weights with one column more than
        it has dimensions hold the intercept last
    """

    kind: ClassVar[str] = "linear"

    def __init__(
        self,
        coef: ArrayLike,
        classes: Sequence[Any] | NDArray[Any],
        encoding: FeatureEncoding | None = None,
        feature_map: FeatureMap | None = None,
    ) -> None:
        self.coef = coef
        self.classes = classes
        self.encoding = encoding
        self.feature_map = feature_map

    @property
    def coef_(self) -> Floats:
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
    def n_features_in_(self) -> int:
        return int(self.coef_.shape[1]) if self.feature_map is None else self.feature_map.features

    def decision_function(self, X: Any) -> Floats:
        """Scores: (n,) in favour of the second of two classes, (n, C) of more."""
        coef = self.coef_
        rows = self._rows(X, self.n_features_in_)
        if self.feature_map is not None:
            rows = self.feature_map(rows)
            if coef.shape[1] > rows.shape[1]:
                rows = np.column_stack([rows, np.ones(len(rows))])
        if len(coef) == 1:
            return np.asarray(rows @ coef[0], np.float64)
        if len(coef) == 2:
            return np.asarray(rows @ (coef[1] - coef[0]), np.float64)
        return np.asarray(rows @ coef.T, np.float64)

    def predict(self, X: Any) -> NDArray[Any]:
        scores = self.decision_function(X)
        index = scores.argmax(1) if scores.ndim == 2 else (scores > 0).astype(np.int64)
        return np.asarray(self.classes_[index])

    def predict_proba(self, X: Any) -> Floats:
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return np.asarray(normalise(scores, axis=1), np.float64)
        return np.column_stack([expit(-scores), expit(scores)])

    def of_scores(self) -> LinearClassifier:
        """The same answers from a score alone, for records whose scores were added up elsewhere."""
        return LinearClassifier([[1.0]], self.classes)

    def save(self, folder: Path) -> None:
        mapped = {} if self.feature_map is None else self.feature_map.arrays()
        arrays: dict[str, Any] = {"coef": self.coef_} | {_MAP + name: one for name, one in mapped.items()}
        encoding = model_page.encoding_page(self.encoding)
        kind = "linear" if self.feature_map is None else MAPPED
        np.savez(folder / model_page.WEIGHTS, **arrays)
        model_page.write_page(folder, kind, self.classes, shape=list(self.coef_.shape), encoding=encoding)

    @classmethod
    def load(cls, folder: Path) -> Self:
        path, page = folder / model_page.PAGE, model_page.read_page(folder)
        coef, arrays = model_page.read_weights(folder, page)
        feature_map = _feature_map(arrays, folder / model_page.WEIGHTS) if page["kind"] == MAPPED else None
        made = cls(coef, page["classes"], model_page.read_encoding(page, path), feature_map)
        model_page.checked(path, lambda: made.coef_)
        model_page.require_width(made.encoding, made.n_features_in_, path)  # type: ignore[arg-type]
        return made

    def card(self) -> Card:
        labels = [str(label) for label in self.classes]
        shown = ", ".join(labels[:_CLASSES])
        shown += f" and {len(labels) - _CLASSES} more" if len(labels) > _CLASSES else ""
        target, columns = "classes", f"{self.n_features_in_} features"
        if isinstance(self.encoding, Encoding):
            if self.encoding.schema.target is not None:
                target = self.encoding.schema.target.name
            columns = f"{len(self.encoding.schema.columns)} columns ({columns} after encoding)"
        return _card(f"A linear classifier of {target} ({shown}) from {columns}", self.encoding)

    def section(self, noise: float | None = None) -> Section:
        found = strongest(self)
        if not found:
            return Section("The model")
        two = len(self.classes) == 2
        axis = f"weight in favour of {self.classes[1]}" if two else "weight in favour of the class"
        return Section(
            "The model",
            plots=(Dots("Strongest weights of the model", axis, found, noise_of_weights(self, noise)),),
        )

    def _rows(self, X: Any, width: int) -> Floats:
        if self.encoding is not None and isinstance(X, pd.DataFrame):
            rows = np.asarray(self.encoding.encode_features(X), np.float64)
        else:
            try:
                rows = np.asarray(X, np.float64)
            except (TypeError, ValueError) as error:
                raise DataError(
                    f"the model expects rows of {width} numbers, found something else ({error}); "
                    "encode the records first, or give the model its encoding"
                ) from error
        if rows.ndim != 2 or rows.shape[1] != width:
            raise DataError(f"the model expects rows of {width} features, shape (n, {width}); found {rows.shape}")
        if not np.isfinite(rows).all():
            raise DataError("the rows hold NaN or infinity; fill missing values by the schema's policy first")
        return rows


class ConstantClassifier(_Released):
    """The same answer for every record: the likeliest class, with `shares` as probabilities.

    It needs nothing but public or released shares, and is what any learned model has to beat.
    """

    kind: ClassVar[str] = "constant"
    encoding = None

    def __init__(self, shares: ArrayLike, classes: Sequence[Any] | NDArray[Any]) -> None:
        self.shares = shares
        self.classes = classes

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

    def of_scores(self) -> Self:
        """It answers whatever the score is."""
        return self

    def save(self, folder: Path) -> None:
        model_page.write_page(folder, self.kind, self.classes, shares=self.shares_.tolist())

    @classmethod
    def load(cls, folder: Path) -> Self:
        path, page = folder / model_page.PAGE, model_page.read_page(folder)
        shares = model_page.get(page, "shares", list, path)
        if any(isinstance(share, bool) or not isinstance(share, int | float) for share in shares):
            raise DataError(f"{path}: shares must be numbers, found {shares}; fetch the model again")
        made = cls(shares, page["classes"])
        model_page.checked(path, lambda: made.shares_)
        return made

    def card(self) -> Card:
        shares = ", ".join(f"{label} {share:.3f}" for label, share in zip(self.classes, self.shares_))
        return _card(f"The same answer for every record ({shares})", None)

    def section(self, noise: float | None = None) -> Section:
        return Section("The model")


def _card(what: str, encoding: Any) -> Card:
    parts = {
        "Input": model_page.input_of(encoding),
        "Intended use and limits": model_page.USE,
        "Files": model_page.FILES,
    }
    return Card("released model", what, "learned", parts)


def _feature_map(arrays: dict[str, NDArray[Any]], path: Path) -> FeatureMap:
    found = {name.removeprefix(_MAP): one for name, one in arrays.items() if name.startswith(_MAP)}
    try:
        return FeatureMap.from_arrays(found)
    except (DataError, ValueError, TypeError, IndexError) as error:
        raise DataError(f"{path}: the feature map can't be used ({error}); fetch the model again") from error
