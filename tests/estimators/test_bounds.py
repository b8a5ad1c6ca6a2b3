"""Bounds that do not fit the records: required, and told to the caller."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes

from comity.errors import StudyError
from comity.estimators import AveragedClassifier, AveragedRegressor, SoftLabelClassifier
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from comity.privacy.unit import Neighbours, Unit

CANCER, MALIGN = load_breast_cancer(return_X_y=True)
DIABETES, PROGRESS = load_diabetes(return_X_y=True, scaled=False)
NOT_RELEASED = "for the holder of the records and is not released"


def by_ranges(x: Any) -> Any:
    """As if the extremes were what a textbook says."""
    low, high = x.min(0), x.max(0)
    return 2 * (x - low) / (high - low) - 1


@pytest.mark.parametrize(
    ("made", "x", "y", "said"),
    [
        (AveragedClassifier(), CANCER, MALIGN, r"bound is missing.*public.*bound=5\.48 holds for 30 columns"),
        (SoftLabelClassifier(CANCER[:50]), CANCER, MALIGN, "bound is missing"),
        (AveragedRegressor(low=0, high=400), DIABETES, PROGRESS, r"bound is missing.*bound=3\.17"),
        (AveragedRegressor(bound=5), DIABETES, PROGRESS, "low and high are missing.*public"),
        (AveragedRegressor(bound=5, low=0), DIABETES, PROGRESS, "^high is missing"),
        (AveragedRegressor(bound=5, high=0), DIABETES, PROGRESS, "^low is missing"),
        (AveragedRegressor(bound=5, low=3, high=3), DIABETES, PROGRESS, "low must lie below high"),
        (AveragedRegressor(bound=5, low=3, high=np.inf), DIABETES, PROGRESS, "finite"),
    ],
)
def test_a_missing_bound_is_asked_for_and_costs_nothing(tmp_path: Path, made: Any, x: Any, y: Any, said: str) -> None:
    books = Ledger.create(
        tmp_path / "x", dataset="x", grant=Approx(5, 1e-5), unit=Unit.RECORD, neighbours=Neighbours.REPLACE
    )
    with pytest.raises(StudyError, match=said):
        made.set_params(ledger=books).fit(x, y)
    assert len(books.entries()) == 1


def test_the_suggested_bound_holds_for_every_row_of_scaled_columns() -> None:
    assert np.linalg.norm(by_ranges(CANCER), axis=1).max() <= 5.48


def test_raw_rows_beyond_their_bound_are_told() -> None:
    with pytest.warns(UserWarning, match=f"100% of the rows are longer than bound=1 .*{NOT_RELEASED}"):
        AveragedClassifier(bound=1.0, random_state=0).fit(CANCER, MALIGN)
    with pytest.warns(UserWarning, match="100% of the rows"):
        SoftLabelClassifier(CANCER[:50], bound=1.0, random_state=0).fit(CANCER, MALIGN)


def test_targets_beyond_their_range_are_told() -> None:
    with pytest.warns(UserWarning, match=f"100% of the targets lie outside low=-1, high=1 .*{NOT_RELEASED}"):
        AveragedRegressor(bound=3.17, low=-1, high=1, random_state=0).fit(by_ranges(DIABETES), PROGRESS)


def test_bounds_that_are_far_too_wide_are_told() -> None:
    with pytest.warns(UserWarning, match=r"the longest row has 0\.005 of the length that bound=1e\+06 allows"):
        AveragedClassifier(bound=1e6, random_state=0).fit(CANCER, MALIGN)
    with pytest.warns(UserWarning, match="targets take up .* of the range low=0, high=100000"):
        AveragedRegressor(bound=3.17, low=0, high=1e5, random_state=0).fit(by_ranges(DIABETES), PROGRESS)


def test_bounds_that_fit_are_silent_and_the_models_learn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found = AveragedClassifier(bound=5.48, epsilon=3.0, random_state=0).fit(by_ranges(CANCER), MALIGN)
        assert found.score(by_ranges(CANCER), MALIGN) > 0.9
        found = AveragedRegressor(bound=3.17, low=0, high=400, epsilon=30.0, random_state=0)
        assert found.fit(by_ranges(DIABETES), PROGRESS).score(by_ranges(DIABETES), PROGRESS) > 0.2


def test_a_few_long_rows_are_what_a_bound_is_for() -> None:
    rows = by_ranges(CANCER)
    bound = float(np.quantile(np.linalg.norm(rows, axis=1), 0.91))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        AveragedClassifier(bound=bound, random_state=0).fit(rows, MALIGN)
    with pytest.warns(UserWarning, match="11% of the rows"):
        AveragedClassifier(bound=float(np.quantile(np.linalg.norm(rows, axis=1), 0.89)), random_state=0).fit(
            rows, MALIGN
        )


def test_the_warning_points_at_the_caller() -> None:
    with pytest.warns(UserWarning, match="of the rows") as told:
        AveragedClassifier(bound=1.0, random_state=0).fit(CANCER, MALIGN)
    assert told[0].filename == __file__
