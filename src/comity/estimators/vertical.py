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
from comity.estimators.simulated_estimator import SimulatedClassifier, SimulatedEstimator, SimulatedRegressor
from comity.estimators.table import (
    check_target_range,
    describe_column_bounds,
    describe_target_range,
    index_labels,
    name_parties,
)
from comity.learn.classifiers import LinearClassifier
from comity.learn.regressor import LinearRegressor
from comity.methods.by_columns import ProductMethod
from comity.methods.vertical import Vertical
from comity.methods.vertical.method import ColumnRegression
from comity.privacy.ledger import Ledger
from comity.privacy.unit import Unit
from comity.study.results.result import Result

Floats = NDArray[np.float64]

_TARGET = "target"


class _ByColumns(SimulatedEstimator):
    """Common to the classifier and the regressor: columns in public bounds, held by different parties, one run."""

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
        ranges = np.asarray(self.bounds, np.float64)
        if ranges.shape not in ((2,), (width, 2)):
            raise StudyError(
                f"bounds must be one pair of low and high, or one for each of {width} columns, found shape "
                f"{ranges.shape}",
                key="bounds",
            )
        ranges = np.broadcast_to(ranges, (width, 2))
        if not (np.isfinite(ranges).all() and (ranges[:, 0] < ranges[:, 1]).all()):
            raise StudyError("bounds must have every low end below its high end, and both finite", key="bounds")
        return ranges

    def _schema(self, width: int, target: Classes | Bounded) -> Schema:
        ranges = self._ranges(width)
        return Schema(
            tuple(Numeric(f"x{at}", float(low), float(high)) for at, (low, high) in enumerate(ranges)), target
        )

    def _split_columns(self, width: int, groups: ArrayLike | None) -> dict[str, tuple[str, ...]]:
        """Each party's columns: as `groups` says, or in turn. The first party has the target."""
        if groups is None:
            if self.parties < 2:
                raise StudyError(
                    f"parties must be 2 or more: columns of different owners are multiplied, found {self.parties}",
                    key="parties",
                )
            count = min(self.parties, width + 1)
            # The target's holder gets its first column last: one column is then enough for two parties.
            names = [f"p{(at + 1) % count}" for at in range(width)]
            order = [f"p{at}" for at in range(count)]
        else:
            names = [str(name) for name in np.asarray(groups)]
            if len(names) != width:
                raise DataError(f"groups must name a party for each of {width} columns, found {len(names)}")
            order = list(dict.fromkeys(names))
            if len(order) < 2:
                raise DataError("groups must name two parties or more: one party needs nobody else's columns")
            party_of_group = dict(zip(order, name_parties(order)))
            names, order = [party_of_group[name] for name in names], list(party_of_group.values())
        columns = {party: [f"x{at}" for at, name in enumerate(names) if name == party] for party in order}
        columns[order[0]].append(_TARGET)
        return {party: tuple(listed) for party, listed in columns.items()}

    def _simulate(self, protocol: ColumnRegression, X: Floats, targets: NDArray[Any]) -> Result:
        frame = _frame(X)
        records = {}
        for party in protocol.design.parties:
            own = protocol.encoding_of(party).encode_features(frame)
            holds = party == protocol.design.label_at
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

    def _warn_of_bounds(self, X: Floats, *more: str) -> None:
        for text in (describe_column_bounds(X, self._ranges(X.shape[1])), *more):
            if text:
                warnings.warn(text, stacklevel=3)


def _frame(X: Floats) -> pd.DataFrame:
    return pd.DataFrame({f"x{at}": column for at, column in enumerate(X.T)})


def _max_rows(rows: int) -> int:
    """The rows that products are sized for: a power of two. The number of rows is public under replacement."""
    return 1 << max(10, (rows - 1).bit_length())


class VerticalClassifier(SimulatedClassifier, _ByColumns):
    """Logistic regression over columns that different parties hold of the same rows.

        model = comity.VerticalClassifier(bounds=(0, 10), classes=[0, 1]).fit(X, y, groups=["bank", "shop", "shop"])
        model.predict(X), model.guarantee_

    Promise      The loss (epsilon, delta) for replacing one row, all of its columns at all parties, against anyone who
                 sees the fitted model, and against the coordinator or up to `colluders` parties together.
    Sensitivity  The protocol's. Columns are clipped to the public `bounds`, never to what is in the data.
    Public       The number of rows, the columns, and the two labels that occur. Give `classes` where the possible
                 labels are not public knowledge.

    Parameters
    ----------
    parties : how many parties get the columns in turn, where `fit` gets no `groups`; the first has the target
    epsilon, delta : the loss of one fit; delta = 0 is pure differential privacy
    bounds : public low and high end, one pair for all columns or one for each, required; values outside are clipped
    solver : "quadratic" (one release), "gradient" (private rounds after it), or "auto" (rounds where they help)
    rounds : private rounds, where there are any
    products : "dealer" (the coordinator deals and works with no party) or "rlwe"
    colluders : parties that may pool what they saw
    intercept : add a constant feature
    classes : the labels; by default those in `y`
    ledger : the table's ledger or its path. A fit is debited in full before its noise is drawn, or refused
    random_state : None for noise as released; an int for a repeatable simulation that protects nobody

    After `fit`: `classes_`, `coef_`, `intercept_`, `model_` (the released model), `result_` (report, transcript),
    `guarantee_` (of all known fits of these records) and `clipped_` (the exact share of rows with a value outside its
    bounds: not released, and not in copies or pickles).
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
        """Simulate one run. `groups` names each column's party. All checks come before the debit."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        labels, indices = index_labels(np.asarray(y), self.classes)
        if len(labels) != 2:
            raise DataError(
                "Only binary classification is supported. The type of the target is multiclass: vertical regression "
                f"has two classes, found {len(labels)}; merge some, or use AveragedClassifier"
            )
        protocol = Vertical.over_columns(
            schema=self._schema(X.shape[1], Classes(_TARGET, tuple(str(label) for label in labels))),
            columns=self._split_columns(X.shape[1], groups),
            pure=not self.delta,
            products=self.products,
            intercept=self.intercept,
            max_rows=_max_rows(len(X)),
            solver=self.solver,
            rounds=self.rounds,
        )
        self._warn_of_bounds(X)
        outcome = self._simulate(protocol, X, indices)
        self.classes_ = labels
        self.model_ = LinearClassifier(outcome.model.weights, classes=labels, constant=self._affine()[2])
        return self


class VerticalRegressor(SimulatedRegressor, _ByColumns):
    """Linear regression over columns of different parties. Targets are clipped to [low, high], public and required.

        model = comity.VerticalRegressor(bounds=(0, 10), low=-20, high=20).fit(X, y, groups=["bank", "shop", "shop"])
        model.predict(X), model.interval()

    Promise, sensitivity and the other parameters are those of `VerticalClassifier`. `interval` gives intervals of the
    coefficients, and `dominated_` marks those that can't be told, because a ridge decides them.
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
        """Simulate one run. `groups` names each column's party. All checks come before the debit."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        low, high = check_target_range(self.low, self.high)
        protocol = Vertical.over_columns(
            solver="quadratic",
            schema=self._schema(X.shape[1], Bounded(_TARGET, low, high)),
            columns=self._split_columns(X.shape[1], groups),
            pure=not self.delta,
            products=self.products,
            intercept=self.intercept,
            max_rows=_max_rows(len(X)),
        )
        targets = np.asarray(y, np.float64)
        self._warn_of_bounds(X, describe_target_range(targets, low, high))
        outcome = self._simulate(protocol, X, targets)
        model = outcome.model
        self.model_ = LinearRegressor(
            model.weights,
            low,
            high,
            errors=model.errors,
            shrunk=model.shrunk,
            constant=self._affine()[2],
            unshrunk=model.unshrunk,
        )
        return self

    @property
    def dominated_(self) -> NDArray[np.bool_]:
        """Which coefficients the ridge decides as much as the records do."""
        check_is_fitted(self, "model_")
        return self.model_.dominated_
