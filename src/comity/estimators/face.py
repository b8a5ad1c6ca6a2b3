"""What every estimator over a simulated run has: a fit that is charged and counted, and the model's answers."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from comity.data import Records
from comity.entropy import fresh_seed
from comity.errors import StudyError
from comity.estimators.bounds import row_bound, rows_clipped, rows_told
from comity.estimators.debit import debit, draws_of, losses_of, name_of, opened
from comity.estimators.exact_figures import ExactFigure
from comity.estimators.fits import FITS, Fit
from comity.estimators.guarantee import Charge, stated
from comity.estimators.surroundings import surroundings
from comity.estimators.table import Floats, rows_in_ball, scale_in_ball, seed_of
from comity.federation.agreement import Agreement
from comity.federation.assessment import Assessment
from comity.federation.declare.consortium import Consortium
from comity.federation.protocol import Protocol
from comity.learn.classifiers import LinearClassifier
from comity.learn.regressor import LinearRegressor
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx, loss_of
from comity.privacy.unit import Unit
from comity.report.result import Result
from comity.study.records.material import Material
from comity.study.results.outcome import Guarantee, Outcome
from comity.study.simulation.ledgers import in_memory
from comity.study.simulation.simulated import simulated


class Face(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    epsilon: float
    delta: float
    bound: float | None
    intercept: bool
    ledger: Ledger | str | PathLike[str] | None
    random_state: int | None
    clipped_ = ExactFigure[float]()
    """The share of fitted rows that were longer than `bound`, exactly: for their holder, in this process."""
    cut_ = ExactFigure[dict[str, float]]()
    """The shares of rows, or of parties, that the method's own bounds clipped after that; as exact, and as private."""

    _family: int
    _place: Fit
    _charge: Charge | None
    _around: tuple[str, ...]
    _kept: Result
    _stated: Guarantee

    @property
    def guarantee_(self) -> Guarantee:
        """What the fitted records are known to have paid, and what can be claimed (`comity.estimators.guarantee`).

        It grows with every further fit of the same records in this process. A model that was sent to another process
        says what was known when it left.
        """
        check_is_fitted(self, "model_")
        tally = FITS.tally(self._place)
        if tally is None:
            return self._stated
        return stated(self._kept.guarantee, charge=self._charge, around=self._around, tally=tally)

    @property
    def result_(self) -> Result:
        """The run with its report and transcript, under `guarantee_`."""
        guarantee = self.guarantee_
        outcome = self._kept.outcome
        return replace(
            self._kept,
            guarantee=guarantee,
            outcome=None if outcome is None else replace(outcome, guarantee=guarantee),
        )

    def _run(
        self,
        protocol: Protocol,
        X: Floats,
        parties: Mapping[str, Records],
        *,
        unit: Unit,
        colluders: int,
        settings: Mapping[str, Any],
    ) -> Outcome:
        """Charge, count, simulate. What can be refused is refused before anything is charged."""
        if not self.epsilon > 0:
            raise StudyError(f"epsilon must be positive, found {self.epsilon}", key="epsilon")
        seed = seed_of(self.random_state)
        loss = loss_of(self.epsilon, self.delta)
        consortium = Consortium(parties=tuple(parties), loss=loss, unit=unit, colluders=colluders)
        draws = draws_of(protocol, consortium)
        around = surroundings(X)
        charge = None
        if self.ledger is not None:
            if seed is not None:
                warnings.warn("a fit with random_state protects nobody, and is debited all the same", stacklevel=3)
            ledger = opened(self.ledger)
            charge = Charge(name_of(ledger), ledger.path is not None, debit(ledger, protocol, consortium, draws))
        # A ledger counts copies by itself, and copies may have ledgers and records of their own.
        place = FITS.enter(
            X,
            losses=losses_of(draws),
            delta=loss.delta if isinstance(loss, Approx) else Decimal(0),
            ledger=None if charge is None else charge.ledger,
            family=self._marked() if charge is None else None,
        )
        agreed = Agreement(fresh_seed().hex(), protocol, consortium, "estimator")
        outcome = simulated(agreed, Material(parties), ledgers=in_memory(agreed), seed=seed)
        outcome = replace(outcome, settings=dict(settings))
        found = protocol.clipped_fractions(outcome.released, list(parties.values()), consortium)
        self.cut_ = {figure.name: figure.value for figure in found}
        self._place, self._charge, self._around, self._kept = place, charge, around, Result.of(outcome)
        return outcome

    def _marked(self) -> int:
        """The mark that this estimator shares with its copies."""
        if not hasattr(self, "_family"):
            self._family = int.from_bytes(os.urandom(8), "big")
        return self._family

    def __sklearn_clone__(self) -> Self:
        copy: Self = super().__sklearn_clone__()
        copy._family = self._marked()
        return copy

    def __dir__(self) -> list[str]:
        """Without exact figures: scikit-learn shows every attribute that is listed in notebooks."""
        return [name for name in super().__dir__() if not isinstance(getattr(type(self), name, None), ExactFigure)]

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if hasattr(self, "model_"):
            state["_stated"] = self.guarantee_
            state["_kept"] = _without_exact_figures(self._kept)
        return state

    def _rows(self, X: Floats) -> Floats:
        return rows_in_ball(X, row_bound(self.bound, X.shape[1]), intercept=self.intercept)

    def _affine(self) -> tuple[Floats, Floats, float | None]:
        """How rows within their bounds are scaled: (scale, shift) of each column, and the constant feature's value."""
        scale, constant = scale_in_ball(row_bound(self.bound, self.n_features_in_), intercept=self.intercept)
        return np.full(self.n_features_in_, scale), np.zeros(self.n_features_in_), constant

    def _told(self, X: Floats, *more: str) -> None:
        """Tell the caller of `fit`, who holds the records, how many rows the bound shortened, and warn of bounds that
        do not fit them."""
        self.clipped_ = rows_clipped(X, row_bound(self.bound, X.shape[1]))
        for text in (rows_told(X, row_bound(self.bound, X.shape[1])), *more):
            if text:
                warnings.warn(text, stacklevel=3)

    def _seen(self, X: Any) -> Floats:
        check_is_fitted(self, "model_")
        X = validate_data(self, X, dtype="float64", reset=False)
        FITS.ask(X)
        return self._rows(X)


class ClassifierFace(ClassifierMixin, Face):  # type: ignore[misc]  # scikit-learn has no types
    model_: LinearClassifier

    @property
    def coef_(self) -> Floats:
        """Of the columns of X, (1, d) for two classes, (C, d) for more: `X @ coef_.T + intercept_` is
        `decision_function(X)` for rows within their bounds, and longer ones are brought there first. Where the method's
        public feature map is not linear, coefficients of what it makes of the rows: those of `model_`."""
        return self._decision()[0]

    @property
    def intercept_(self) -> Floats:
        """(1,) for two classes, (C,) for more."""
        return self._decision()[1]

    def _decision(self) -> tuple[Floats, Floats]:
        check_is_fitted(self, "model_")
        model = self.model_
        if model.feature_map is not None and model.feature_map.affine is None:
            return model.coef_, model.intercept_
        scale, shift, _ = self._affine()
        return model.coef_ * scale, model.intercept_ + model.coef_ @ shift

    def decision_function(self, X: Any) -> Floats:
        rows = self._seen(X)
        return self.model_.decision_function(rows)

    def predict(self, X: Any) -> NDArray[Any]:
        rows = self._seen(X)
        return self.model_.predict(rows)

    def predict_proba(self, X: Any) -> Floats:
        rows = self._seen(X)
        return self.model_.predict_proba(rows)


class RegressorFace(RegressorMixin, Face):  # type: ignore[misc]  # scikit-learn has no types
    model_: LinearRegressor

    @property
    def coef_(self) -> Floats:
        """Of the columns of X, (d,): `X @ coef_ + intercept_` is `predict(X)` for rows within their bounds."""
        check_is_fitted(self, "model_")
        return self.model_.coef_ * self._affine()[0]

    @property
    def intercept_(self) -> float:
        check_is_fitted(self, "model_")
        return float(self.model_.intercept_ + self.model_.coef_ @ self._affine()[1])

    def interval(self, confidence: float = 0.95) -> Floats:
        """Intervals of the coefficients, (d, 2), where the study released standard errors."""
        check_is_fitted(self, "model_")
        return self.model_.interval(confidence) * self._affine()[0][:, None]

    def predict(self, X: Any) -> Floats:
        rows = self._seen(X)
        return self.model_.predict(rows)


def _without_exact_figures(result: Result) -> Result:
    """A result without what was read off the records, and without what stays with each party."""
    bare: dict[str, Any] = {"assessment": Assessment(), "findings": ()}
    outcome = None if result.outcome is None else replace(result.outcome, kept={}, **bare)
    return replace(result, outcome=outcome, **bare)
