"""Soft-label learning as a scikit-learn classifier: `fit` simulates a consortium over the rows it is given."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array, validate_data

from comity.data import Records
from comity.errors import DataError
from comity.estimators.simulated_estimator import SimulatedClassifier
from comity.estimators.table import index_labels, split_rows
from comity.learn import LinearClassifier
from comity.methods.softlabel import PublishedSoftLabel, SoftLabel, SoftLabelProtocol
from comity.methods.softlabel.choice import StatisticName
from comity.methods.softlabel.published.method import LearnsFrom
from comity.privacy.ledger import Ledger
from comity.privacy.unit import Unit

Floats = NDArray[np.float64]


class SoftLabelClassifier(SimulatedClassifier):
    """Linear classifier from what parties know about public rows, after Hamm, Cao and Belkin (2016).

        model = comity.SoftLabelClassifier(public_rows, parties=20, bound=2, classes=[0, 1]).fit(X, y)
        model.predict(X), model.guarantee_

    Promise      The loss (epsilon, delta) for replacing a whole party, against anyone who sees the fitted model, also
                 together with one party, which knows its own part of the noise. The process that calls `fit` sees all
                 rows.
    Sensitivity  The protocol's. Rows are scaled into the unit ball by the public `bound`, never by the data.
    Public       The number of rows and features, which rows belong to one party, and the labels that occur. Give
                 `classes` where the possible labels are not public knowledge.

    Parameters
    ----------
    auxiliary : public, unlabelled rows (N, d), on the scale of X
    parties : how many parties the rows are split over evenly, where `fit` gets no `groups`
    epsilon, delta : the loss of one fit; delta = 0 is pure differential privacy
    statistic : what is summed: "votes", "histograms", "class-sums", "cells" or "models"; "auto" chooses from public
        figures
    records_per_party : how many rows a party has; by default rows divided by parties, both public here
    method : None, or a published method with a trusted coordinator: "avg" of local models, "soft" or "vote" labels
    l2 : regularisation of local models, and in a published method of the global one
    bound : public bound on the norm of a row, required. Longer rows are scaled down to it, and `fit` warns where there
        are many
    intercept : add a constant feature
    classes : the labels; by default those in `y`
    ledger : the table's ledger or its path. A fit is debited in full before its noise is drawn, or refused
    random_state : None for noise as released; an int for a repeatable simulation that protects nobody

    After `fit`: `classes_`, `coef_`, `intercept_`, `model_` (the released model), `result_` (report, transcript)
    and `guarantee_` (of all known fits of these records; *simulation only* without a ledger file, or after a search).
    """

    def __init__(
        self,
        auxiliary: ArrayLike | None = None,
        *,
        parties: int = 20,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        statistic: StatisticName = "auto",
        records_per_party: int | None = None,
        method: LearnsFrom | None = None,
        l2: float = 1e-3,
        bound: float | None = None,
        intercept: bool = True,
        classes: Sequence[Any] | None = None,
        ledger: Ledger | str | PathLike[str] | None = None,
        random_state: int | None = None,
    ) -> None:
        self.auxiliary = auxiliary
        self.parties = parties
        self.epsilon = epsilon
        self.delta = delta
        self.statistic = statistic
        self.records_per_party = records_per_party
        self.method = method
        self.l2 = l2
        self.bound = bound
        self.intercept = intercept
        self.classes = classes
        self.ledger = ledger
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: ArrayLike | None = None) -> Self:
        """Simulate one run. `groups` names each row's party. All checks come before the debit."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        labels, indices = index_labels(np.asarray(y), self.classes)
        rows = self._rows(X)
        split = split_rows(len(rows), self.parties, groups, "softlabel")
        records = {name: Records(rows[places], indices[places]) for name, places in split.items()}
        protocol = self._protocol(
            self._rows(self._validate_auxiliary(X.shape[1])), tuple(map(str, labels)), max(1, len(rows) // len(records))
        )
        self._warn_of_bounds(X)
        outcome = self._run(
            protocol,
            X,
            records,
            unit=Unit.PARTY,
            # A reader of the model may be a party, which knows its own part of the noise.
            colluders=1 if self.method is None and len(records) > 1 else 0,
            settings=self._settings(),
        )
        self.classes_ = labels
        model = outcome.model
        self.model_ = LinearClassifier(
            model.weights, classes=labels, feature_map=model.feature_map, constant=self._affine()[2]
        )
        return self

    def _protocol(
        self, auxiliary: Floats, classes: tuple[str, ...], records: int
    ) -> SoftLabelProtocol | PublishedSoftLabel:
        if self.method is not None:
            return SoftLabel.published_over_rows(
                auxiliary=auxiliary, classes=classes, method=self.method, l2=self.l2, sensitivity="tight"
            )
        return SoftLabel.over_rows(
            auxiliary=auxiliary,
            classes=classes,
            statistic=self.statistic,
            sizes=records if self.records_per_party is None else self.records_per_party,
            local_l2=self.l2,
        )

    def _validate_auxiliary(self, width: int) -> Floats:
        if self.auxiliary is None:
            raise DataError(f"auxiliary is missing: give public, unlabelled rows of shape (N, {width})")
        rows: Floats = check_array(self.auxiliary, dtype=np.float64, input_name="auxiliary")
        if rows.shape[1] != width:
            raise DataError(f"auxiliary must have the {width} features of X, found {rows.shape[1]}")
        return rows

    def _settings(self) -> dict[str, Any]:
        names = ("parties", "epsilon", "delta", "statistic", "method", "l2", "bound", "intercept")
        return {f"softlabel.{name}": getattr(self, name) for name in names}
