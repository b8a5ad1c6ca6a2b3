"""Vertical regressions as scikit-learn estimators: `fit` simulates owners of columns over the table it is given."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from comity.data import Bounded, Classes, Numeric, Records, Schema
from comity.errors import DataError, StudyError
from comity.estimators.bounds import columns_told, target_range, targets_told
from comity.estimators.face import ClassifierFace, Face, RegressorFace
from comity.estimators.table import indexed, party_names
from comity.learn.classifiers import LinearClassifier
from comity.learn.regressor import LinearRegressor
from comity.methods.by_columns import ProductMethod
from comity.methods.vertical import GradientRegression, Vertical
from comity.methods.vertical.method import ColumnRegression
from comity.privacy.ledger import Ledger
from comity.privacy.unit import Unit
from comity.study.results.outcome import Outcome

Floats = NDArray[np.float64]

_TARGET = "target"


class _ByColumns(Face):
    """What the classifier and the regressor share: columns in public bounds, held by different parties, one run."""

    parties: int
    bounds: ArrayLike | None
    colluders: int
    products: ProductMethod

    def _ranges(self, width: int) -> Floats:
        """Low and high of every column."""
        if self.bounds is None:
            raise StudyError(
                "bounds is missing: give the low and high end of every column that is public knowledge, not measured "
                "on the records: one pair for all columns, or one for each",
                key="bounds",
            )
        found = np.asarray(self.bounds, np.float64)
        if found.shape not in ((2,), (width, 2)):
            raise StudyError(
                f"bounds must be one pair of low and high, or one for each of {width} columns, found shape "
                f"{found.shape}",
                key="bounds",
            )
        found = np.broadcast_to(found, (width, 2))
        if not (np.isfinite(found).all() and (found[:, 0] < found[:, 1]).all()):
            raise StudyError("bounds must have every low end below its high end, and both finite", key="bounds")
        return found

    def _schema(self, width: int, target: Classes | Bounded) -> Schema:
        ranges = self._ranges(width)
        return Schema(
            tuple(Numeric(f"x{at}", float(low), float(high)) for at, (low, high) in enumerate(ranges)), target
        )

    def _held(self, width: int, groups: ArrayLike | None) -> dict[str, tuple[str, ...]]:
        """Which columns each party holds: as `groups` says, or in turn; the first one has the target."""
        if groups is None:
            if self.parties < 2:
                raise StudyError(
                    f"parties must be 2 or more: columns of different owners are multiplied, found {self.parties}",
                    key="parties",
                )
            count = min(self.parties, width + 1)
            # The target's holder comes last in turn, so that one column is enough for two parties.
            names = [f"p{(at + 1) % count}" for at in range(width)]
            order = [f"p{at}" for at in range(count)]
        else:
            names = [str(name) for name in np.asarray(groups)]
            if len(names) != width:
                raise DataError(f"groups must name a party for each of {width} columns, found {len(names)}")
            order = list(dict.fromkeys(names))
            if len(order) < 2:
                raise DataError("groups must name two parties or more: one party needs nobody else's columns")
            called = dict(zip(order, party_names(order)))
            names, order = [called[name] for name in names], list(called.values())
        held = {party: [f"x{at}" for at, name in enumerate(names) if name == party] for party in order}
        held[order[0]].append(_TARGET)
        return {party: tuple(columns) for party, columns in held.items()}

    def _simulated(self, protocol: ColumnRegression, X: Floats, targets: NDArray[Any]) -> Outcome:
        frame = _frame(X)
        records = {}
        for party in protocol.layout.parties:
            own = protocol.encoding_of(party).encode_features(frame)
            holds = party == protocol.layout.label_at
            records[party] = Records(np.asarray(own, np.float64), targets if holds else None)
        ranges = self._ranges(X.shape[1])
        outside = (ranges[:, 0] > X) | (ranges[:, 1] < X)
        outcome = self._run(
            protocol,
            X,
            records,
            unit=Unit.RECORD,
            colluders=min(self.colluders, len(records) - 1),
            settings={
                f"vertical.{key}": value
                for key, value in self.get_params().items()
                if key not in ("ledger", "classes", "bounds")
            },
        )
        self._encoding, self.clipped_ = protocol.encoding, float(outside.any(axis=1).mean())
        return outcome

    def _rows(self, X: Floats) -> Floats:
        return np.asarray(self._encoding.encode_features(_frame(X)), np.float64)

    def _affine(self) -> tuple[Floats, Floats, float | None]:
        low, high = self._ranges(self.n_features_in_).T
        return 2 / (high - low), -(low + high) / (high - low), 1.0 if self.intercept else None

    def _warn(self, X: Floats, *more: str) -> None:
        for text in (columns_told(X, self._ranges(X.shape[1])), *more):
            if text:
                warnings.warn(text, stacklevel=3)


def _frame(X: Floats) -> pd.DataFrame:
    return pd.DataFrame({f"x{at}": column for at, column in enumerate(X.T)})


def _most(rows: int) -> int:
    """Rows that products have room for: a power of two, since their number is public under replacement."""
    return 1 << max(10, (rows - 1).bit_length())


class VerticalClassifier(ClassifierFace, _ByColumns):
    """Logistic regression over columns of different parties, who hold them of the same rows.

    Promise      the loss (epsilon, delta) for replacing one row, all of its columns at all parties, against whoever
                 sees the fitted model, and against the coordinator or up to `colluders` parties together.
    Sensitivity  that of the protocol; columns are clipped to the public `bounds`, never to what is in the data.
    Public       the number of rows, the columns, and the two labels that occur: give `classes` where it is not known
                 beforehand which can.

    Parameters
    ----------
    parties : how many parties the columns are dealt to in turn, where `fit` gets no `groups`; the first has the target
    epsilon, delta : the loss of one fit; delta = 0 is pure differential privacy
    bounds : public low and high end, one pair for all columns or one for each, required; values outside are clipped
    solver : "quadratic" (one release), "gradient" (private rounds after it), or "auto": rounds where they help
    rounds : private rounds, where there are any
    products : "dealer" (the coordinator deals and works with no party) or "rlwe"
    colluders : parties that may pool what they saw
    intercept : add a constant feature
    classes : the labels, where they are not to be read off `y`
    ledger : the table's ledger or its path. A fit is debited in full before its noise is drawn, or refused
    random_state : None for noise as released; an int for a repeatable simulation that protects nobody

    A fitted one has `classes_`, `coef_`, `intercept_`, `model_` (the released model), `result_` (report, transcript),
    `guarantee_` (of all known fits of these records) and `clipped_`, the share of rows with a value outside its bounds:
    that is read off the records, is no part of what is released, and is not in copies or pickles.
    """

    def __init__(
        self,
        *,
        parties: int = 2,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        bounds: ArrayLike | None = None,
        solver: Literal["auto", "gradient", "quadratic"] = "auto",
        rounds: int = 6,
        products: ProductMethod = "dealer",
        colluders: int = 1,
        intercept: bool = True,
        classes: Sequence[Any] | None = None,
        ledger: Ledger | str | PathLike[str] | None = None,
        random_state: int | None = None,
    ) -> None:
        self.parties = parties
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.solver = solver
        self.rounds = rounds
        self.products = products
        self.colluders = colluders
        self.intercept = intercept
        self.classes = classes
        self.ledger = ledger
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: Any, y: Any, groups: ArrayLike | None = None) -> Self:
        """Simulate one run; `groups` names each column's party. Everything is checked before anything is debited."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        known, places = indexed(np.asarray(y), self.classes)
        if len(known) != 2:
            raise DataError(
                "Only binary classification is supported. The type of the target is multiclass: vertical regression "
                f"has two classes, found {len(known)}; merge some, or use AveragedClassifier"
            )
        quadratic = Vertical.quadratic(
            schema=self._schema(X.shape[1], Classes(_TARGET, tuple(str(label) for label in known))),
            columns=self._held(X.shape[1], groups),
            pure=not self.delta,
            products=self.products,
            intercept=self.intercept,
            max_rows=_most(len(X)),
        )
        protocol: ColumnRegression = quadratic
        if self.solver != "quadratic":
            protocol = GradientRegression(quadratic=quadratic, solver=self.solver, rounds=self.rounds)
        self._warn(X)
        outcome = self._simulated(protocol, X, places)
        self.classes_ = known
        self.model_ = LinearClassifier(outcome.model.weights, classes=known, constant=self._affine()[2])
        return self


class VerticalRegressor(RegressorFace, _ByColumns):
    """Linear regression over columns of different parties; targets are clipped to [low, high], public and required.

    Promise, sensitivity and the other parameters are those of `VerticalClassifier`. `interval` gives intervals of the
    coefficients, and `dominated_` marks those that a ridge decides.
    """

    def __init__(
        self,
        *,
        low: float | None = None,
        high: float | None = None,
        parties: int = 2,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        bounds: ArrayLike | None = None,
        products: ProductMethod = "dealer",
        colluders: int = 1,
        intercept: bool = True,
        ledger: Ledger | str | PathLike[str] | None = None,
        random_state: int | None = None,
    ) -> None:
        self.low = low
        self.high = high
        self.parties = parties
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.products = products
        self.colluders = colluders
        self.intercept = intercept
        self.ledger = ledger
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: ArrayLike | None = None) -> Self:
        """Simulate one run; `groups` names each column's party. Everything is checked before anything is debited."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        low, high = target_range(self.low, self.high)
        protocol = Vertical.quadratic(
            schema=self._schema(X.shape[1], Bounded(_TARGET, low, high)),
            columns=self._held(X.shape[1], groups),
            pure=not self.delta,
            products=self.products,
            intercept=self.intercept,
            max_rows=_most(len(X)),
        )
        targets = np.asarray(y, np.float64)
        self._warn(X, targets_told(targets, low, high))
        outcome = self._simulated(protocol, X, targets)
        found = outcome.model
        self.model_ = LinearRegressor(
            found.weights, low, high, None, found.errors, found.shrunk, constant=self._affine()[2]
        )
        return self

    @property
    def dominated_(self) -> NDArray[np.bool_]:
        """Which coefficients the ridge decides as much as the records do."""
        check_is_fitted(self, "model_")
        return self.model_.dominated_
