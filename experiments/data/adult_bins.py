"""Adult as the papers on private classifiers take it: 123 binary features, with every edge written down here.

As in Platt (1999), whose layout Pathak, Rane and Raj (2010) follow: continuous columns in quintiles, a binary feature
per quintile and per category, nothing for an unknown category. Quintiles that coincide are one. Those of capital gain
and loss are all zero, so these two are cut at zero and at the median of what is above it, which makes 123 features;
`A9A` cuts them at zero alone, and education and hours once more, as the a9a file of LIBSVM does. The edges were read
off the training rows, as in the papers: no noise pays for that, and a study would take them from its schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.data import Records, dataset

Edges = Mapping[str, tuple[float, ...]]

QUINTILES: Edges = {
    "age": (26, 33, 41, 50),
    "fnlwgt": (106648, 158662, 196338, 259873),
    "education_num": (9, 10, 13),
    "hours_per_week": (35, 40, 48),
    "capital_gain": (1, 7298),
    "capital_loss": (1, 1887),
}
A9A: Edges = {
    **QUINTILES,
    "education_num": (9, 10, 11, 13),
    "hours_per_week": (35, 40, 41, 48),
    "capital_gain": (1,),
    "capital_loss": (1,),
}
CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "workclass": (
        "Federal-gov",
        "Local-gov",
        "Never-worked",
        "Private",
        "Self-emp-inc",
        "Self-emp-not-inc",
        "State-gov",
        "Without-pay",
    ),
    "education": (
        "10th",
        "11th",
        "12th",
        "1st-4th",
        "5th-6th",
        "7th-8th",
        "9th",
        "Assoc-acdm",
        "Assoc-voc",
        "Bachelors",
        "Doctorate",
        "HS-grad",
        "Masters",
        "Preschool",
        "Prof-school",
        "Some-college",
    ),
    "marital_status": (
        "Divorced",
        "Married-AF-spouse",
        "Married-civ-spouse",
        "Married-spouse-absent",
        "Never-married",
        "Separated",
        "Widowed",
    ),
    "occupation": (
        "Adm-clerical",
        "Armed-Forces",
        "Craft-repair",
        "Exec-managerial",
        "Farming-fishing",
        "Handlers-cleaners",
        "Machine-op-inspct",
        "Other-service",
        "Priv-house-serv",
        "Prof-specialty",
        "Protective-serv",
        "Sales",
        "Tech-support",
        "Transport-moving",
    ),
    "relationship": (
        "Husband",
        "Not-in-family",
        "Other-relative",
        "Own-child",
        "Unmarried",
        "Wife",
    ),
    "race": (
        "Amer-Indian-Eskimo",
        "Asian-Pac-Islander",
        "Black",
        "Other",
        "White",
    ),
    "sex": (
        "Female",
        "Male",
    ),
    "native_country": (
        "Cambodia",
        "Canada",
        "China",
        "Columbia",
        "Cuba",
        "Dominican-Republic",
        "Ecuador",
        "El-Salvador",
        "England",
        "France",
        "Germany",
        "Greece",
        "Guatemala",
        "Haiti",
        "Holand-Netherlands",
        "Honduras",
        "Hong",
        "Hungary",
        "India",
        "Iran",
        "Ireland",
        "Italy",
        "Jamaica",
        "Japan",
        "Laos",
        "Mexico",
        "Nicaragua",
        "Outlying-US(Guam-USVI-etc)",
        "Peru",
        "Philippines",
        "Poland",
        "Portugal",
        "Puerto-Rico",
        "Scotland",
        "South",
        "Taiwan",
        "Thailand",
        "Trinadad&Tobago",
        "United-States",
        "Vietnam",
        "Yugoslavia",
    ),
}
CLASSES = ("<=50K", ">50K")


@dataclass(frozen=True, eq=False)
class Adult:
    """The dataset's own training and test rows, encoded."""

    train: Records
    test: Records

    @property
    def features(self) -> int:
        return int(self.train.features.shape[1])


def adult(edges: Edges = QUINTILES) -> Adult:
    """Rows of norm 1: the 123 features and a constant one. COMITY_DATA names the folder of the data."""
    frame = dataset("adult")
    rows = encoded(frame, edges)
    labels = (frame["income"].astype(str).to_numpy(object) == CLASSES[1]).astype(np.int64)
    first = frame["split"].astype(str).to_numpy(object) == "train"
    return Adult(Records(rows[first], labels[first]), Records(rows[~first], labels[~first]))


def encoded(frame: pd.DataFrame, edges: Edges) -> NDArray[np.float64]:
    columns = [
        _one_hot(np.searchsorted(cuts, frame[name].to_numpy(float), side="right"), len(cuts) + 1)
        for name, cuts in edges.items()
    ]
    for name, values in CATEGORIES.items():
        place = {value: at for at, value in enumerate(values)}
        found = np.array([place.get(value, -1) for value in frame[name].astype(str)], np.int64)
        columns.append(_one_hot(found, len(values)))
    rows = np.hstack([*columns, np.ones((len(frame), 1))])
    # Above the rounding of a norm, so that no row leaves the unit ball.
    return np.asarray(rows / (np.linalg.norm(rows, axis=1, keepdims=True) * (1 + 2.0**-40)), np.float64)


def _one_hot(places: NDArray[np.int64], width: int) -> NDArray[np.float64]:
    return np.asarray(places[:, None] == np.arange(width), np.float64)
