"""A released linear regression."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from comity.artefacts.artefact import Card
from comity.artefacts.section import Dot, Dots, Grid, Section
from comity.data import Encoding
from comity.data.row_products import clip_received, products
from comity.errors import DataError
from comity.learn.classifiers import FeatureEncoding
from comity.learn.newton import Floats
from comity.learn.quadratic import DECIDED
from comity.learn.released_model import (
    MAX_SHOWN,
    ReleasedEstimator,
    StoredModel,
    constant_of,
    encoded_rows,
    has_intercept,
    model_card,
    read_value,
    split_constant,
    write_model,
)
from comity.special import ndtri

_UNTOLD = "can't be told"


@dataclass(eq=False, repr=False)
class LinearRegressor(ReleasedEstimator):
    """Predicts a number in the units of the target.

    As in scikit-learn, `encode(X) @ coef_ + intercept_` is `predict(X)`; `encode` returns the encoded features.

    Parameters
    ----------
    coef : the weights as released, (D,), over encoded rows with their constant, for a target scaled to [−1, 1]
    low, high : the target's bounds, which −1 and 1 stand for
    encoding : turns a DataFrame into rows; without one the columns of a DataFrame are the rows' entries
    errors : standard errors of `unshrunk`, if the study released them
    shrunk : how much of each weight a ridge decided, from 0 to 1, if the study released it
    constant : value of the last entry of every row, if it is a constant feature and no encoding says so
    unshrunk : what intervals lie around, with less of a ridge than `coef`; `coef` if the study released nothing else
    """

    kind: ClassVar[str] = "regression"
    estimates = "regressor"
    place: ClassVar[str] = "model"
    measure: ClassVar[str] = "mean squared error, the target's bounds being -1 and 1"

    coef: ArrayLike
    low: float = -1.0
    high: float = 1.0
    encoding: FeatureEncoding | None = None
    errors: ArrayLike | None = None
    shrunk: ArrayLike | None = None
    constant: float | None = None
    unshrunk: ArrayLike | None = None

    @property
    def weights(self) -> Floats:
        """As released, (D,): over encoded rows with their constant, for a target on [−1, 1]."""
        coef = np.asarray(self.coef, np.float64)
        if coef.ndim != 1:
            raise DataError(f"coef must be one weight per feature, found shape {coef.shape}")
        return coef

    @property
    def coef_(self) -> Floats:
        """Coefficients of the columns of `encode`, (d,), in units of the target."""
        return self._unit * split_constant(self.weights, self._constant)[0]

    @property
    def intercept_(self) -> float:
        middle = (self.low + self.high) / 2
        return float(middle + self._unit * split_constant(self.weights, self._constant)[1])

    @property
    def dominated_(self) -> NDArray[np.bool_]:
        """Which coefficients can't be told: noise hides them, or a ridge decides them as much as the records do. Their
        intervals have no ends."""
        if self.shrunk is None:
            return np.zeros(self.n_features_in_, bool)
        return np.asarray(split_constant(np.asarray(self.shrunk, np.float64), self._constant)[0] > DECIDED, bool)

    @property
    def unshrunk_(self) -> Floats:
        """What the intervals of `coef_` lie around: coefficients that fit less well and are off by noise alone."""
        return self._unit * self._unshrunk[0]

    @property
    def errors_(self) -> Floats | None:
        """Standard errors of `unshrunk_`, if the study released them."""
        return None if self.errors is None else self._unit * self._errors[0]

    def interval(self, confidence: float = 0.95) -> Floats:
        """Intervals of the coefficients, (d, 2), around `unshrunk_`. They account for noise, residuals and, from 90 %
        on, the ridge's shrinkage. Those of coefficients that can't be told (`dominated_`) have no ends."""
        reach = np.where(self.dominated_, np.inf, self._reach(confidence) * self._unit * self._errors[0])
        return np.column_stack([self.unshrunk_ - reach, self.unshrunk_ + reach])

    def intercept_interval(self, confidence: float = 0.95) -> Floats:
        """The interval of the intercept, (2,)."""
        reach = self._reach(confidence) * self._unit * abs(float(self._errors[1]))
        middle = (self.low + self.high) / 2 + self._unit * float(self._unshrunk[1])
        return np.array([middle - reach, middle + reach])

    @property
    def n_features_in_(self) -> int:
        """Columns of an array that the model takes, without the constant one."""
        return len(self.weights) - (self._constant is not None)

    def encode(self, X: Any) -> Floats:
        """The matrix that `coef_` is for, from a frame of raw columns or from encoded rows."""
        rows = self._rows(X)
        return rows if self._constant is None else rows[:, :-1]

    def scores(self, X: Any) -> Floats:
        """Predictions on the scale of [−1, 1]."""
        return np.asarray(self._rows(X) @ self.weights, np.float64)

    def scale_targets(self, values: Floats) -> Floats:
        """Targets on the scale of [−1, 1]; values beyond the bounds count as these."""
        return np.clip(2 * (np.asarray(values, np.float64) - self.low) / (self.high - self.low) - 1, -1.0, 1.0)

    def split_rows(self, X: Any) -> tuple[Floats, Floats]:
        """Rows without the entry that an intercept multiplies; and that entry, (n,), zeros if there is none."""
        rows = self._rows(X)
        if has_intercept(self.constant, self.encoding):
            return rows[:, :-1], rows[:, -1]
        return rows, np.zeros(len(rows))

    def shift(self, share: float, weights: Floats, intercept: float) -> LinearRegressor:
        """The model whose scores are `share` times these, plus those of `weights` (p,) and `intercept` over what
        `split_rows` returns. It has no standard errors."""
        added = np.append(weights, intercept) if has_intercept(self.constant, self.encoding) else weights
        return replace(self, coef=share * self.weights + added, errors=None, shrunk=None, unshrunk=None)

    @property
    def _constant(self) -> float | None:
        return constant_of(self.constant, self.encoding)

    @property
    def _unit(self) -> float:
        """Half the target's range: a step of one on the scale of [−1, 1]."""
        return (self.high - self.low) / 2

    @property
    def _errors(self) -> tuple[Floats, Floats]:
        if self.errors is None:
            raise DataError("the study released no standard errors with this model")
        return split_constant(np.asarray(self.errors, np.float64), self._constant)

    @property
    def _unshrunk(self) -> tuple[Floats, Floats]:
        found = self.coef if self.unshrunk is None else self.unshrunk
        return split_constant(np.asarray(found, np.float64), self._constant)

    def _reach(self, confidence: float) -> float:
        if not 0 < confidence < 1:
            raise DataError(f"a confidence lies between 0 and 1, found {confidence}")
        return float(ndtri((1 + confidence) / 2))

    def _rows(self, X: Any) -> Floats:
        return encoded_rows(X, len(self.weights), self._constant, self.encoding)

    def _released(self) -> Floats:
        """Weights and, if released, standard errors, the ridge's share and what they lie around: (1, D) to (4, D)."""
        lines = [self.weights]
        for more in (self.errors, self.shrunk, self.unshrunk):
            if more is None:
                break
            lines.append(np.asarray(more, np.float64))
        return np.stack(lines)

    def predict(self, X: Any) -> Floats:
        return self._in_units(self.scores(X))

    def _in_units(self, scores: Floats) -> Floats:
        return self.low + (self.high - self.low) * (1 + scores) / 2

    def rowwise(self) -> RowwiseRegressor:
        """The form of the model that is evaluated on private records."""
        return RowwiseRegressor(self)

    def rowwise_scores(self, X: Any) -> Floats:
        """`scores` to about ten digits, with weights clipped to a public range. The score of a record does not depend
        on the other records, to the last bit."""
        return products(self._rows(X), clip_received(self.weights)[None])[:, 0]

    def predict_table(self, rows: Any) -> dict[str, Floats]:
        """Columns of a table of predictions."""
        return {"predicted": self.predict(rows)}

    def predict_table_from_scores(self, scores: Floats) -> dict[str, Floats]:
        """`predict_table` from scores (n,) that were added up elsewhere."""
        return LinearRegressor([1.0], self.low, self.high).predict_table(scores[:, None])

    def save(self, folder: Path) -> None:
        write_model(
            folder,
            self.kind,
            (),
            {"coef": self._released()},
            encoding=self.encoding,
            constant=self.constant,
            low=float(self.low),
            high=float(self.high),
        )

    @classmethod
    def load(cls, folder: Path) -> Self:
        stored = StoredModel.read(folder)
        low, high = (read_value(stored.page, key, float, stored.path) for key in ("low", "high"))
        errors, shrunk, unshrunk = (stored.coef[at] if len(stored.coef) > at else None for at in (1, 2, 3))
        model = cls(stored.coef[0], low, high, stored.encoding, errors, shrunk, stored.constant, unshrunk)
        stored.check(lambda: model.coef_, lambda: len(model.weights))
        return model

    def card(self) -> Card:
        what = f"A linear regression from {self.n_features_in_} features"
        if isinstance(self.encoding, Encoding):
            target = self.encoding.schema.target
            columns = len(self.encoding.schema.columns)
            what = f"A linear regression of {'a number' if target is None else target.name} from {columns} columns"
            what += f" ({self.n_features_in_} features after encoding)"
        return model_card(what, self.encoding)

    def section(self, noise: float | None = None) -> Section:
        strongest = self._strongest()
        note = "The strongest, of encoded features, in units of the target; all are in the model's file."
        if self.dominated_.any():
            note += (
                f" {int(self.dominated_.sum())} of all can't be told: noise hides them, or a ridge decides them as "
                "much as the records do, as with levels that few records have."
            )
        heads = ("feature", "coefficient", "estimate", "standard error")
        if not strongest:
            return Section("The model")
        dots = tuple(
            Dot(one.name, one.weight if one.error is None else one.estimate, one.error)
            for one in strongest
            if not one.untold
        )
        plot = Dots("Strongest coefficients of the model", "coefficient, in units of the target", dots)
        table = Grid(heads, tuple(one.line for one in strongest), note)
        return Section("The model", plots=(plot,) if dots else (), tables=(table,))

    def _strongest(self) -> tuple[_Shown, ...]:
        """The largest coefficients with the names of their features, and what is known of them."""
        if not isinstance(self.encoding, Encoding):
            return ()
        coef, names, errors, untold = self.coef_, self.encoding.names, self.errors_, self.dominated_
        order = np.argsort(-np.abs(coef))[:MAX_SHOWN]
        return tuple(
            _Shown(
                names[at],
                float(coef[at]),
                float(self.unshrunk_[at]),
                None if errors is None else float(errors[at]),
                bool(untold[at]),
            )
            for at in order
        )


@dataclass(frozen=True)
class _Shown:
    """A line of the model's table."""

    name: str
    weight: float
    estimate: float
    error: float | None
    untold: bool

    @property
    def line(self) -> tuple[str, float, float | str, float | str | None]:
        if self.untold:
            return self.name, self.weight, _UNTOLD, _UNTOLD
        return self.name, self.weight, self.estimate, self.error


class RowwiseRegressor:
    """The predictions of a linear regression, record by record (`LinearRegressor.rowwise_scores`)."""

    def __init__(self, model: LinearRegressor) -> None:
        self._model = model

    def predict(self, X: Any) -> Floats:
        return self._model._in_units(self._model.rowwise_scores(X))
