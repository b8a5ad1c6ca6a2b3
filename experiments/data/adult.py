"""Adult with a schema: bounds, categories and edges written down, nothing measured; columns dealt to parties."""

from __future__ import annotations

import pandas as pd

from comity.data import Categorical, Classes, Column, Numeric, Schema, dataset
from experiments.data.adult_bins import CATEGORIES

_DROPPED = ("workclass", "occupation", "native_country")
# Whoever never worked has no occupation, so that it goes with the missing values.
_NEVER = "Never-worked"

COLUMNS = (
    "age",
    "workclass",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
)


def adult() -> pd.DataFrame:
    """The 45,222 records without a missing value, native countries as United-States or other."""
    frame = dataset("adult")
    frame = frame[~(frame[list(_DROPPED)] == "?").any(axis=1)].reset_index(drop=True)
    return frame.assign(
        native_country=frame["native_country"].where(frame["native_country"] == "United-States", "other")
    )


def adult_schema(*, steps: bool = False) -> Schema:
    """`steps` turns age and capital gains and losses into steps at round figures, as a user of the method may."""
    numbers: dict[str, Column] = {
        "age": Numeric("age", 17, 90),
        "education_num": Numeric("education_num", 1, 16),
        "capital_gain": Numeric("capital_gain", 0, 99_999),
        "capital_loss": Numeric("capital_loss", 0, 4_356),
        "hours_per_week": Numeric("hours_per_week", 1, 99),
    }
    if steps:
        numbers["age"] = Numeric("age", 17, 90, edges=(25, 35, 45, 55, 65))
        numbers["capital_gain"] = Numeric("capital_gain", 0, 99_999, edges=(1, 5_000))
        numbers["capital_loss"] = Numeric("capital_loss", 0, 4_356, edges=(1, 1_500))
    choices: dict[str, Column] = {
        "workclass": Categorical("workclass", tuple(value for value in CATEGORIES["workclass"] if value != _NEVER)),
        "marital_status": Categorical("marital_status", CATEGORIES["marital_status"]),
        "occupation": Categorical("occupation", CATEGORIES["occupation"]),
        "relationship": Categorical("relationship", CATEGORIES["relationship"]),
        "race": Categorical("race", CATEGORIES["race"]),
        "sex": Categorical("sex", CATEGORIES["sex"]),
        "native_country": Categorical("native_country", ("United-States", "other")),
    }
    found = {**numbers, **choices}
    return Schema(tuple(found[name] for name in COLUMNS), Classes("income", ("<=50K", ">50K")))


def census_schema() -> Schema:
    """All 14 columns and the label, in cells of round bounds: numbers in 8 bins, those that span magnitudes on a
    logarithmic scale, values that no list has as another one."""
    known = ("workclass", "education", "marital_status", "occupation", "relationship", "race", "sex", "native_country")
    named: dict[str, Column] = {name: Categorical(name, CATEGORIES[name], other=True) for name in known}
    named["education"] = Categorical("education", CATEGORIES["education"])
    numbers: dict[str, Column] = {
        "age": Numeric("age", 17, 90, bins=8),
        "fnlwgt": Numeric("fnlwgt", 10_000, 1_500_000, bins=8, scale="log"),
        "education_num": Numeric("education_num", 1, 16, bins=8, follows="education"),
        "capital_gain": Numeric("capital_gain", 0, 100_000, bins=8, scale="log"),
        "capital_loss": Numeric("capital_loss", 0, 5_000, bins=8, scale="log"),
        "hours_per_week": Numeric("hours_per_week", 1, 99, bins=8),
    }
    return Schema((*numbers.values(), *named.values()), Classes("income", ("<=50K", ">50K")))


def adult_columns(parties: int) -> dict[str, tuple[str, ...]]:
    """Columns in turn to each party; the first one holds the label too."""
    names = [f"p{number}" for number in range(parties)]
    held = {name: list(COLUMNS[number::parties]) for number, name in enumerate(names)}
    held[names[0]].append("income")
    return {name: tuple(columns) for name, columns in held.items()}
