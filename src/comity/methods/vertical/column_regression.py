"""What every regression over columns of several parties has: how it reads records, and the model that it presents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Bounded, Encoding, LocalRecords, Records
from comity.federation.baseline import Baseline
from comity.methods.by_columns.method import ByColumns
from comity.methods.vertical.baselines import baselines, error_of
from comity.methods.vertical.layout import Layout

if TYPE_CHECKING:
    from comity.federation.own_score import OwnScore
    from comity.learn.classifiers import LinearClassifier
    from comity.learn.regressor import LinearRegressor

Floats = NDArray[np.float64]


class ColumnRegression(ByColumns):
    """A linear model of whole rows, whatever way it was fitted."""

    name = "vertical"

    if TYPE_CHECKING:

        @property
        def layout(self) -> Layout: ...

    @property
    def encoding(self) -> Encoding:
        return self.layout.encoding

    def encoding_of(self, party: str) -> Encoding:
        return self.layout.encoding_of(party)

    def model(
        self, coef: Floats, errors: Floats | None = None, shrunk: Floats | None = None
    ) -> LinearClassifier | LinearRegressor:
        from comity.learn.classifiers import LinearClassifier
        from comity.learn.regressor import LinearRegressor

        if self.layout.classes:
            return LinearClassifier(coef[None, :], classes=self.layout.classes, encoding=self.encoding)
        target = self.layout.schema.target
        assert isinstance(target, Bounded)
        return LinearRegressor(coef, target.low, target.high, self.encoding, errors, shrunk)

    def score(self, model: LinearClassifier | LinearRegressor, test: Records) -> float:
        return error_of(self.layout, model.weights.reshape(-1), test)

    def score_own(self, presented: Any, records: LocalRecords, party: str) -> OwnScore | None:
        """No owner has all columns that the model needs: an [evaluation] measures it on all of them."""
        return None

    def compare(self, train: Sequence[Records], test: Records) -> list[Baseline]:
        return baselines(self.layout, train, test)
