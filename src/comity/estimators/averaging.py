"""Averaged models as scikit-learn estimators: `fit` simulates a consortium over the rows it is given."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import validate_data

from comity.data import Records
from comity.estimators.bounds import target_range, targets_clipped, targets_told
from comity.estimators.exact_figures import ExactFigure
from comity.estimators.face import ClassifierFace, Face, RegressorFace
from comity.estimators.table import dealt, indexed
from comity.learn.classifiers import LinearClassifier
from comity.learn.regressor import LinearRegressor
from comity.methods.averaging import Averaging, AveragingProtocol
from comity.methods.averaging.method import Solver
from comity.methods.averaging.objectives import Kind
from comity.privacy.ledger import Ledger
from comity.privacy.unit import Unit
from comity.study.results.outcome import Outcome

Floats = NDArray[np.float64]


class _Averaged(Face):
    """What the classifier and the regressor share: rows in the unit ball, dealt to parties, one run, one debit."""

    parties: int

    def _averaged(
        self,
        protocol: AveragingProtocol,
        X: Floats,
        rows: Floats,
        targets: NDArray[Any],
        split: dict[str, NDArray[np.int64]],
    ) -> Outcome:
        return self._run(
            protocol,
            X,
            {name: Records(rows[places], targets[places]) for name, places in split.items()},
            unit=Unit.RECORD,
            colluders=1 if len(split) > 1 else 0,
            settings={f"averaging.{key}": value for key, value in self._settings().items()},
        )

    def _settings(self) -> dict[str, Any]:
        return {key: value for key, value in self.get_params().items() if key not in ("ledger", "classes")}

    def _dealt(self, count: int, groups: ArrayLike | None) -> dict[str, NDArray[np.int64]]:
        return dealt(count, self.parties, groups, "averaging")


def _sizes(split: dict[str, NDArray[np.int64]]) -> dict[str, int]:
    """Under replacement the number of a party's rows is public."""
    return {name: max(1, len(places)) for name, places in split.items()}


class AveragedClassifier(ClassifierFace, _Averaged):
    """Linear classifier of all parties' rows, by secure sums of gradients or of local models.

    Promise      the loss (epsilon, delta) for replacing one row, against whoever sees the fitted model, and against a
                 coordinator with one of the parties.
    Sensitivity  that of the protocol; rows are brought into the unit ball by the public `bound`, never by the data.
    Public       the number of rows of each party, the features, and the labels that occur: give `classes` where it is
                 not known beforehand which can.

    Parameters
    ----------
    parties : how many parties the rows are dealt to evenly, where `fit` gets no `groups`
    epsilon, delta : the loss of one fit; delta = 0 is pure differential privacy
    model : "logistic" or "svm" for two classes, "softmax"; None for logistic, or softmax above two classes
    solver : "gradient", "average", "moments", or "auto": gradient where delta > 0, else by a public rule
    l2, rounds, clip : None leaves them to a rule of public quantities. A clip below 1, as the rule takes where there is
        much noise, costs a logistic fit little in its classes and makes its probabilities too sure
    bound : public bound on the norm of a row, required; longer rows are scaled down to it, and a fit warns its caller
        when they are many
    intercept : add a constant feature
    classes : the labels, where they are not to be read off `y`
    ledger : the table's ledger or its path. A fit is debited in full before its noise is drawn, or refused
    random_state : None for noise as released; an int for a repeatable simulation that protects nobody

    A fitted one has `classes_`, `coef_`, `intercept_`, `model_` (the released model), `result_` (report, transcript),
    `clipped_` (the exact share of rows that the bound shortened: no part of the release, and not in copies or pickles),
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
        """Simulate one run; `groups` names each row's party. Everything is checked before anything is debited."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        known, places = indexed(np.asarray(y), self.classes)
        rows, split = self._rows(X), self._dealt(len(X), groups)
        protocol = Averaging.over_rows(
            features=rows.shape[1],
            model=cast(Kind, self.model or ("logistic" if len(known) == 2 else "softmax")),
            classes=tuple(str(label) for label in known),
            sizes=_sizes(split),
            solver=cast(Solver, self.solver),
            l2=self.l2,
            rounds=self.rounds,
            clip=self.clip,
        )
        self._told(X)
        outcome = self._averaged(protocol, X, rows, places, split)
        self.classes_ = known
        self.model_ = LinearClassifier(outcome.model.weights, classes=known, constant=self._affine()[2])
        return self


class AveragedRegressor(RegressorFace, _Averaged):
    """Linear regression of all parties' rows; targets are clipped to [low, high], which is public and required.

    Promise, sensitivity and the other parameters are those of `AveragedClassifier`. "auto" releases moments once, with
    standard errors: `interval()`. A fitted one has `targets_clipped_` beside `clipped_`.
    """

    targets_clipped_ = ExactFigure[float]()
    """The share of targets outside [low, high], exactly: for the holder of the records, in this process."""

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
        """Simulate one run; `groups` names each row's party. Everything is checked before anything is debited."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        low, high = target_range(self.low, self.high)
        rows, split = self._rows(X), self._dealt(len(X), groups)
        protocol = Averaging.over_rows(
            features=rows.shape[1],
            model="linear",
            classes=(),
            low=low,
            high=high,
            sizes=_sizes(split),
            solver=cast(Solver, self.solver),
            l2=self.l2,
            rounds=self.rounds,
            clip=self.clip,
        )
        targets = np.asarray(y, np.float64)
        self._told(X, targets_told(targets, low, high))
        self.targets_clipped_ = targets_clipped(targets, low, high)
        outcome = self._averaged(protocol, X, rows, targets, split)
        found = outcome.model
        self.model_ = LinearRegressor(
            found.weights, low, high, errors=found.errors, shrunk=found.shrunk, constant=self._affine()[2]
        )
        return self
