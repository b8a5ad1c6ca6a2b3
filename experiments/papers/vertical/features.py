"""The features of the paper's logistic tables, or what stands in for them, scaled to [−1, 1] by public constants.

The paper says that Adult has 41 features and does not list them. Six numbers and dummies of workclass, marital status,
occupation, relationship, race and sex, the first category of each left out, are 41. The Dutch census is not at hand.
60,420 tax units of the Current Population Survey stand in, with 36 features too: the 14 of Table 1 and 22 states. The
class is a wage above 20,000.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.entropy import Stream
from experiments.data.adult_bins import CATEGORIES
from experiments.papers.vertical.cps import BOUNDS

Floats = NDArray[np.float64]

NUMBERS = {
    "age": (17, 90),
    "fnlwgt": (10_000, 1_500_000),
    "education_num": (1, 16),
    "capital_gain": (0, 99_999),
    "capital_loss": (0, 4_356),
    "hours_per_week": (1, 99),
}
CHOICES = ("workclass", "marital_status", "occupation", "relationship", "race", "sex")
_NEVER = "Never-worked"
"""Records with a missing occupation are dropped, and those who never worked have none."""

# Large states by population.
STATES = (
    "CA",
    "TX",
    "FL",
    "NY",
    "PA",
    "IL",
    "OH",
    "GA",
    "NC",
    "MI",
    "NJ",
    "VA",
    "WA",
    "AZ",
    "MA",
    "TN",
    "IN",
    "MO",
    "MD",
    "WI",
    "CO",
    "MN",
)
DUTCH_ROWS = 60_420
WAGE = 20_000


def adult_features(frame: pd.DataFrame) -> tuple[Floats, Floats]:
    """41 features and the class, 0 or 1."""
    columns = [_scale(frame, name, *ends) for name, ends in NUMBERS.items()]
    for name in CHOICES:
        known = [value for value in CATEGORIES[name] if value != _NEVER]
        columns += [_sign(frame[name] == value) for value in known[1:]]
    return np.column_stack(columns), np.asarray(frame["income"] == ">50K", np.float64)


def wage_features(frame: pd.DataFrame) -> tuple[Floats, Floats]:
    """36 features of 60,420 tax units (of all, where there are fewer) and the class, 0 or 1."""
    order = Stream.public("reproduce vertical", "wages above").permutation(len(frame))[:DUTCH_ROWS]
    part = frame.iloc[order]
    columns = [_scale(part, name, *ends) for name, ends in BOUNDS.items()]
    columns += [_sign(part["state"] == state) for state in STATES]
    return np.column_stack(columns), np.asarray(part["wage_income"] > WAGE, np.float64)


def _scale(frame: pd.DataFrame, name: str, low: float, high: float) -> Floats:
    unit = (frame[name].to_numpy(np.float64) - low) / (high - low)
    return np.asarray(np.clip(2 * unit - 1, -1.0, 1.0), np.float64)


def _sign(holds: pd.Series) -> Floats:
    return np.where(holds.to_numpy(bool), 1.0, -1.0)
