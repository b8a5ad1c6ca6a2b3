"""Averaged models as scikit-learn estimators: `fit` simulates a consortium over the rows it is given."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

from comity.data import Records
from comity.estimators.simulated_estimator import (
    ExactFigure,
    SimulatedClassifier,
    SimulatedEstimator,
    SimulatedRegressor,
)
from comity.estimators.table import check_target_range, clipped_targets, describe_target_range, index_labels, split_rows
from comity.learn.classifiers import LinearClassifier
from comity.learn.regressor import LinearRegressor
from comity.methods.averaging import Averaging, AveragingProtocol
from comity.methods.averaging.method import Solver
from comity.methods.averaging.objectives import Kind
from comity.privacy.ledger import Ledger
from comity.privacy.unit import Unit
from comity.study.results.result import Result

Floats = NDArray[np.float64]


class _Averaged(SimulatedEstimator):
    """Common to the classifier and the regressor: rows in the unit ball, split over parties, one run, one debit."""

    parties: int

    def _simulate(
        self,
        protocol: AveragingProtocol,
        X: Floats,
        rows: Floats,
        targets: NDArray[Any],
        split: dict[str, NDArray[np.int64]],
    ) -> Result:
        return self._run(
            protocol,
            X,
            {name: Records(rows[places], targets[places]) for name, places in split.items()},
            unit=Unit.RECORD,
            colluders=1 if len(split) > 1 else 0,
            settings={
                f"averaging.{key}": value
                for key, value in self.get_params().items()
                if key not in ("ledger", "classes")
            },
        )


def _count_sizes(split: dict[str, NDArray[np.int64]]) -> dict[str, int]:
    """Under replacement the number of a party's rows is public."""
    return {name: max(1, len(places)) for name, places in split.items()}


class AveragedClassifier(SimulatedClassifier, _Averaged):
    """Linear classifier of all parties' rows, by secure sums of gradients or of local models.

        model = comity.AveragedClassifier(bound=2, epsilon=1, classes=[0, 1], ledger="table.ledger").fit(X, y)
        model.predict(X), model.guarantee_

    Promise      The loss (epsilon, delta) for replacing one row, against anyone who sees the fitted model, and against
                 a coordinator with one of the parties.
    Sensitivity  The protocol's. Rows are scaled into the unit ball by the public `bound`, never by the data.
    Public       The number of rows of each party, the features, and the labels that occur. Give `classes` where the
                 possible labels are not public knowledge.

    Parameters
    ----------
    parties : how many parties the rows are split over evenly, where `fit` gets no `groups`
    epsilon, delta : the loss of one fit; delta = 0 is pure differential privacy
    model : "logistic" or "svm" for two classes, "softmax"; None for logistic, or softmax above two classes
    solver : "gradient", "average", "moments", or "auto": gradient where delta > 0, else by a public rule
    l2, rounds, clip : None lets a rule of public quantities choose. Under much noise the rule takes a clip below 1,
        which costs a logistic fit little accuracy and makes its probabilities too confident
    bound : public bound on the norm of a row, required. Longer rows are scaled down to it, and `fit` warns where there
        are many
    intercept : add a constant feature
    classes : the labels; by default those in `y`
    ledger : the table's ledger or its path. A fit is debited in full before its noise is drawn, or refused
    random_state : None for noise as released; an int for a repeatable simulation that protects nobody

    After `fit`: `classes_`, `coef_`, `intercept_`, `model_` (the released model), `result_` (report, transcript),
    `clipped_` (the exact share of rows that the bound shortened: not released, and not in copies or pickles) and
    `guarantee_` (of all known fits of these records; *simulation only* without a ledger file, or after a search).
    """

    def __init__(
        self,
        *,
        parties: int = 5,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        model: str | None = None,
        solver: str = "auto",
        l2: float | None = None,
        rounds: int | None = None,
        clip: float | None = None,
        bound: float | None = None,
        intercept: bool = True,
        classes: Sequence[Any] | None = None,
        ledger: Ledger | str | PathLike[str] | None = None,
        random_state: int | None = None,
    ) -> None:
        self.parties = parties
        self.epsilon = epsilon
        self.delta = delta
        self.model = model
        self.solver = solver
        self.l2 = l2
        self.rounds = rounds
        self.clip = clip
        self.bound = bound
        self.intercept = intercept
        self.classes = classes
        self.ledger = ledger
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: ArrayLike | None = None) -> Self:
        """Simulate one run. `groups` names each row's party. All checks come before the debit."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        labels, indices = index_labels(np.asarray(y), self.classes)
        rows, split = self._rows(X), split_rows(len(X), self.parties, groups, "averaging")
        protocol = Averaging.over_rows(
            features=rows.shape[1],
            model=cast(Kind, self.model or ("logistic" if len(labels) == 2 else "softmax")),
            classes=tuple(str(label) for label in labels),
            sizes=_count_sizes(split),
            solver=cast(Solver, self.solver),
            l2=self.l2,
            rounds=self.rounds,
            clip=self.clip,
        )
        self._warn_of_bounds(X)
        outcome = self._simulate(protocol, X, rows, indices, split)
        self.classes_ = labels
        self.model_ = LinearClassifier(outcome.model.weights, classes=labels, constant=self._affine()[2])
        return self


class AveragedRegressor(SimulatedRegressor, _Averaged):
    """Linear regression of all parties' rows. Targets are clipped to [low, high], which is public and required.

        model = comity.AveragedRegressor(bound=2, low=0, high=10, ledger="table.ledger").fit(X, y)
        model.predict(X), model.interval()

    Promise, sensitivity and the other parameters are those of `AveragedClassifier`. The solver "auto" releases moments
    once, with standard errors for `interval()`. After `fit` it has `targets_clipped_` beside `clipped_`.
    """

    targets_clipped_ = ExactFigure[float]()
    """The exact share of targets outside [low, high]."""

    def __init__(
        self,
        *,
        low: float | None = None,
        high: float | None = None,
        parties: int = 5,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        solver: str = "auto",
        l2: float | None = None,
        rounds: int | None = None,
        clip: float | None = None,
        bound: float | None = None,
        intercept: bool = True,
        ledger: Ledger | str | PathLike[str] | None = None,
        random_state: int | None = None,
    ) -> None:
        self.low = low
        self.high = high
        self.parties = parties
        self.epsilon = epsilon
        self.delta = delta
        self.solver = solver
        self.l2 = l2
        self.rounds = rounds
        self.clip = clip
        self.bound = bound
        self.intercept = intercept
        self.ledger = ledger
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: ArrayLike | None = None) -> Self:
        """Simulate one run. `groups` names each row's party. All checks come before the debit."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        low, high = check_target_range(self.low, self.high)
        rows, split = self._rows(X), split_rows(len(X), self.parties, groups, "averaging")
        protocol = Averaging.over_rows(
            features=rows.shape[1],
            model="linear",
            classes=(),
            low=low,
            high=high,
            sizes=_count_sizes(split),
            solver=cast(Solver, self.solver),
            l2=self.l2,
            rounds=self.rounds,
            clip=self.clip,
        )
        targets = np.asarray(y, np.float64)
        self._warn_of_bounds(X, describe_target_range(targets, low, high))
        self.targets_clipped_ = clipped_targets(targets, low, high)
        outcome = self._simulate(protocol, X, rows, targets, split)
        model = outcome.model
        self.model_ = LinearRegressor(
            model.weights, low, high, errors=model.errors, shrunk=model.shrunk, constant=self._affine()[2]
        )
        return self
