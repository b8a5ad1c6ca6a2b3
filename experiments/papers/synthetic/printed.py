"""Figures that Fioretto and Van Hentenryck (2019) print: Table 1, Table 2, and those of the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from comity.methods.synthetic.published import Learner

EPSILONS: Final = (1.0, 0.5, 0.1)
COLUMNS: Final = ("NP-Agt", "DP-Pred", "PFDS(s)", "PFDS")
TASKS: Final[dict[Learner, str]] = {"logistic": "Log. Reg.", "svm": "SVM", "linear": "Lin. Reg."}


@dataclass(frozen=True)
class PrintedDataset:
    """A line of Table 1: the dataset by the paper's name, its entries, attributes and agents."""

    title: str
    entries: int
    numerical: int
    categorical: int
    agents: int
    learners: tuple[Learner, ...]


TABLE_1: Final = {
    "Census": PrintedDataset("Census Income", 48842, 8, 6, 100, ("logistic", "svm")),
    "Credit": PrintedDataset("Credit", 45211, 13, 10, 100, ("logistic", "svm")),
    "Diabetes": PrintedDataset("Diabetes", 1151, 19, 0, 10, ("logistic", "svm")),
    "Bike": PrintedDataset("Bike sharing", 17389, 8, 8, 100, ("linear",)),
    "News": PrintedDataset("News popularity", 39797, 47, 14, 100, ("linear",)),
}

TABLE_2: Final[dict[tuple[str, Learner, float], tuple[float, float, float, float]]] = {
    ("Census", "logistic", 1.0): (0.276, 0.232, 0.266, 0.212),
    ("Census", "logistic", 0.5): (0.276, 0.245, 0.301, 0.226),
    ("Census", "logistic", 0.1): (0.276, 0.293, 0.336, 0.246),
    ("Census", "svm", 1.0): (0.283, 0.253, 0.267, 0.209),
    ("Census", "svm", 0.5): (0.283, 0.262, 0.269, 0.224),
    ("Census", "svm", 0.1): (0.283, 0.269, 0.268, 0.239),
    ("Credit", "logistic", 1.0): (0.365, 0.339, 0.321, 0.277),
    ("Credit", "logistic", 0.5): (0.365, 0.352, 0.392, 0.294),
    ("Credit", "logistic", 0.1): (0.365, 0.418, 0.499, 0.301),
    ("Credit", "svm", 1.0): (0.351, 0.347, 0.358, 0.289),
    ("Credit", "svm", 0.5): (0.351, 0.366, 0.404, 0.308),
    ("Credit", "svm", 0.1): (0.351, 0.379, 0.409, 0.310),
    ("Diabetes", "logistic", 1.0): (0.396, 0.334, 0.380, 0.279),
    ("Diabetes", "logistic", 0.5): (0.396, 0.349, 0.411, 0.294),
    ("Diabetes", "logistic", 0.1): (0.396, 0.389, 0.434, 0.345),
    ("Diabetes", "svm", 1.0): (0.423, 0.441, 0.397, 0.311),
    ("Diabetes", "svm", 0.5): (0.423, 0.449, 0.431, 0.322),
    ("Diabetes", "svm", 0.1): (0.423, 0.456, 0.434, 0.346),
    ("Bike", "linear", 1.0): (0.377, 0.270, 0.206, 0.127),
    ("Bike", "linear", 0.5): (0.377, 0.281, 0.225, 0.154),
    ("Bike", "linear", 0.1): (0.377, 0.296, 0.220, 0.157),
    ("News", "linear", 1.0): (0.194, 0.176, 0.121, 0.079),
    ("News", "linear", 0.5): (0.194, 0.178, 0.172, 0.095),
    ("News", "linear", 0.1): (0.194, 0.185, 0.175, 0.096),
}
"""Errors by dataset, learner and ε: NP-Agt, DP-Pred, PFDS(s), PFDS."""

REDUCTIONS: Final[dict[Learner, float]] = {"logistic": 0.053, "svm": 0.081, "linear": 0.113}
"""Average error reductions against DP-Pred, as the text below Table 2 has them."""


def printed(dataset: str, learner: Learner, epsilon: float, column: str) -> float:
    return TABLE_2[dataset, learner, epsilon][COLUMNS.index(column)]


def mean_reduction(learner: Learner) -> float:
    """The mean over all cells of a learner of DP-Pred's error less PFDS's, from the printed table."""
    found = [row[1] - row[3] for (_, kind, _), row in TABLE_2.items() if kind == learner]
    return sum(found) / len(found)
