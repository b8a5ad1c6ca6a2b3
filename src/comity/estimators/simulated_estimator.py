"""The base of every estimator whose `fit` simulates a run: charged, counted, and answering by the released model.

Exact figures about the fitted records, such as the share of clipped rows, stay in the process that fitted: they are
kept beside the estimator, not in it. Pickles, copies, clones, saved models, `vars` and every `repr` are without them,
and a private model can be handed on as it is.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from os import PathLike
from typing import Any, Generic, Self, TypeVar, overload
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from comity.data import Records
from comity.entropy import fresh_seed
from comity.errors import StudyError
from comity.estimators.fits import FITS, Fit
from comity.estimators.guarantee import Charge, charge_fit, find_enclosing_search, list_draws, widen_guarantee
from comity.estimators.table import (
    Floats,
    ball_scale,
    check_row_bound,
    check_seed,
    clipped_rows,
    describe_row_bound,
    scale_into_ball,
)
from comity.federation.agreement import Agreement
from comity.federation.declare.consortium import Consortium
from comity.federation.evaluation.assessment import Assessment
from comity.federation.protocol import Protocol
from comity.learn.classifiers import LinearClassifier
from comity.learn.regressor import LinearRegressor
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx, loss_of
from comity.privacy.unit import Unit
from comity.study.records.party_data import PartyData
from comity.study.results.result import Guarantee, Result
from comity.study.simulation.simulate import run_simulation

Value = TypeVar("Value")

_FIGURES: WeakKeyDictionary[object, dict[str, Any]] = WeakKeyDictionary()


class ExactFigure(Generic[Value]):
    """An attribute of an estimator that was read off its records."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> ExactFigure[Value]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...
    def __get__(self, instance: object | None, owner: type) -> ExactFigure[Value] | Value:
        if instance is None:
            return self
        try:
            figure: Value = _FIGURES[instance][self._name]
        except KeyError:
            raise AttributeError(
                f"{owner.__name__}.{self._name} is an exact figure about the fitted records: it exists after fit, in "
                "the object that was fitted, and not in copies, pickles or saved models; fit where the records are"
            ) from None
        return figure

    def __set__(self, instance: object, value: Value) -> None:
        _FIGURES.setdefault(instance, {})[self._name] = value


class SimulatedEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """`_run` charges, counts and simulates a fit; `guarantee_` and `result_` say what it cost and gave."""

    epsilon: float
    delta: float
    bound: float | None
    intercept: bool
    ledger: Ledger | str | PathLike[str] | None
    random_state: int | None
    clipped_ = ExactFigure[float]()
    """The exact share of fitted rows that were longer than `bound`."""
    shares_clipped_ = ExactFigure[dict[str, float]]()
    """The exact shares of rows, or of parties, that the method's own bounds clipped after that."""

    _family: int
    _fit: Fit
    _charge: Charge | None
    _search: tuple[str, ...]
    _run_result: Result
    _last_guarantee: Guarantee

    @property
    def guarantee_(self) -> Guarantee:
        """What the fitted records are known to have paid, and what can be claimed (`comity.estimators.guarantee`).

        Every further fit of the same records in this process widens it. A model that was sent to another process says
        what was known when it was sent.
        """
        check_is_fitted(self, "model_")
        tally = FITS.tally(self._fit)
        if tally is None:
            return self._last_guarantee
        return widen_guarantee(self._run_result.guarantee, charge=self._charge, search=self._search, tally=tally)

    @property
    def result_(self) -> Result:
        """The run with its report and transcript, under `guarantee_`."""
        return replace(self._run_result, guarantee=self.guarantee_)

    def _run(
        self,
        protocol: Protocol,
        X: Floats,
        parties: Mapping[str, Records],
        *,
        unit: Unit,
        colluders: int,
        settings: Mapping[str, Any],
    ) -> Result:
        """Charge, count and simulate a fit. Every refusal comes before the charge."""
        if not self.epsilon > 0:
            raise StudyError(f"epsilon must be positive, found {self.epsilon}", key="epsilon")
        seed = check_seed(self.random_state)
        loss = loss_of(self.epsilon, self.delta)
        consortium = Consortium(parties=tuple(parties), loss=loss, unit=unit, colluders=colluders)
        draws = list_draws(protocol, consortium)
        search = find_enclosing_search(X)
        charge = None
        if self.ledger is not None:
            if seed is not None:
                warnings.warn("a fit with random_state protects nobody, and is debited all the same", stacklevel=3)
            charge = charge_fit(self.ledger, protocol, consortium, draws)
        # A ledger counts the fits of copies itself, and a copy may have another ledger and other records.
        fit = FITS.register(
            X,
            losses=Counter(draw.loss for draw in draws),
            delta=loss.delta if isinstance(loss, Approx) else Decimal(0),
            ledger=None if charge is None else charge.ledger,
            family=self._mark_family() if charge is None else None,
        )
        agreed = Agreement(fresh_seed().hex(), protocol, consortium, "estimator")
        outcome = run_simulation(agreed, PartyData(parties), seed=seed)
        outcome = replace(outcome, settings=dict(settings))
        found = protocol.clipped_fractions(outcome.released, list(parties.values()), consortium)
        self.shares_clipped_ = {figure.name: figure.value for figure in found}
        self._fit, self._charge, self._search, self._run_result = fit, charge, search, outcome
        return outcome

    def _mark_family(self) -> int:
        """The random mark that this estimator shares with its clones."""
        if not hasattr(self, "_family"):
            self._family = int.from_bytes(os.urandom(8), "big")
        return self._family

    def __sklearn_clone__(self) -> Self:
        copy: Self = super().__sklearn_clone__()
        copy._family = self._mark_family()
        return copy

    def __dir__(self) -> list[str]:
        """Without exact figures: in notebooks scikit-learn shows every attribute that is listed here."""
        return [name for name in super().__dir__() if not isinstance(getattr(type(self), name, None), ExactFigure)]

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if hasattr(self, "model_"):
            state["_last_guarantee"] = self.guarantee_
            state["_run_result"] = _without_exact_figures(self._run_result)
        return state

    def _rows(self, X: Floats) -> Floats:
        return scale_into_ball(X, check_row_bound(self.bound, X.shape[1]), intercept=self.intercept)

    def _affine(self) -> tuple[Floats, Floats, float | None]:
        """How rows within their bounds are scaled: (scale, shift) of each column, and the constant feature's value."""
        scale, constant = ball_scale(check_row_bound(self.bound, self.n_features_in_), intercept=self.intercept)
        return np.full(self.n_features_in_, scale), np.zeros(self.n_features_in_), constant

    def _warn_of_bounds(self, X: Floats, *more: str) -> None:
        """Warn the caller of `fit`, who holds the records, of bounds that do not fit them; sets `clipped_`."""
        bound = check_row_bound(self.bound, X.shape[1])
        self.clipped_ = clipped_rows(X, bound)
        for text in (describe_row_bound(X, bound), *more):
            if text:
                warnings.warn(text, stacklevel=3)

    def _validate_rows(self, X: Any) -> Floats:
        check_is_fitted(self, "model_")
        X = validate_data(self, X, dtype="float64", reset=False)
        FITS.record_query(X)
        return self._rows(X)


class SimulatedClassifier(ClassifierMixin, SimulatedEstimator):  # type: ignore[misc]  # scikit-learn has no types
    model_: LinearClassifier

    @property
    def coef_(self) -> Floats:
        """Of the columns of X, (1, d) for two classes, (C, d) for more.

        `X @ coef_.T + intercept_` is `decision_function(X)` for rows within their bounds; longer rows are clipped
        first. Where the method's public feature map is not linear these are the coefficients of `model_`, for the
        mapped rows."""
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
        rows = self._validate_rows(X)
        return self.model_.decision_function(rows)

    def predict(self, X: Any) -> NDArray[Any]:
        rows = self._validate_rows(X)
        return self.model_.predict(rows)

    def predict_proba(self, X: Any) -> Floats:
        rows = self._validate_rows(X)
        return self.model_.predict_proba(rows)


class SimulatedRegressor(RegressorMixin, SimulatedEstimator):  # type: ignore[misc]  # scikit-learn has no types
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
        rows = self._validate_rows(X)
        return self.model_.predict(rows)


def _without_exact_figures(result: Result) -> Result:
    """The result without figures that were read off the records, and without what stays with each party."""
    return replace(result, kept={}, assessment=Assessment(), findings=())
