"""Soft labels between 24 parties of 20 records each, beside PATE on the same public rows: the tables of the comparison.

PATE (Papernot et al. 2018) trusts a coordinator with the votes of all models: Gaussian noise on the counts of each
query, a noisy argmax, and a student that learns from it. Its noise is for the same loss; it pays for no colluders. Of
several numbers of queries the best one *on the test rows* stands in the table, which flatters it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from comity.entropy import Stream
from comity.learn import linear_votes
from comity.privacy import Approx
from comity.privacy.accounting import gaussian_budget
from experiments.accuracy.softlabel import FULL, RECORDS, dealt, runs
from experiments.accuracy.tables import table
from experiments.papers.softlabel.default import Layout
from experiments.papers.softlabel.release import DELTA

PARTIES = 24
EPSILONS = (1.0, 10.0)
QUERIES = (20, 50, 100, 200, 400, 1000)
STUDENT_L2 = 0.01
"""Inverse penalty of PATE's student on columns of deviation one."""
_LOCAL_L2 = 1e-4

Floats = NDArray[np.float64]


def run(*, quick: bool, out: Path | None = None) -> list[dict[str, Any]]:
    """A row for each table and epsilon. COMITY_DATA names the folder of the data."""
    names, draws = (("credit", "har"), 5) if quick else (tuple(FULL.parties), FULL.repeats)
    with threadpool_limits(1, user_api="blas"):
        return [row for name in names for row in of_table(name, draws)]


def of_table(name: str, draws: int) -> list[dict[str, Any]]:
    layout, protocol = dealt(table(name), PARTIES, FULL.auxiliary)
    votes, found = local_votes(layout), []
    for epsilon in EPSILONS:
        # Named as in the comparison, so that these are the runs of its table.
        case = f"softlabel {name} K={PARTIES} t=1 eps={epsilon:g}"
        ours, statistic = runs(layout, protocol, epsilon, draws, case)
        accuracies = [one.accuracy for one in ours]
        queries, student = best_students([layout], [votes], epsilon, draws)
        found.append(
            {
                "case": f"{name} K={PARTIES} n={RECORDS} eps={epsilon:g}",
                "ours": float(np.mean(accuracies)),
                "spread": float(np.std(accuracies)),
                "worst": float(min(accuracies)),
                "pate": student,
                "queries": queries,
                "constant": constant(layout),
                "statistic": statistic,
                "repeats": draws,
                "note": "accuracy; PATE trusts its coordinator, and its queries are the best number on the test rows",
            }
        )
    return found


def best_students(layouts: Sequence[Layout], votes: Sequence[Floats], epsilon: float, draws: int) -> tuple[int, float]:
    """The number of queries with the best mean accuracy on the test rows, and that accuracy."""
    means = {}
    for queries in QUERIES:
        stream = Stream.public("pate", str(epsilon), str(queries))
        means[queries] = float(
            np.mean([students(layout, one, epsilon, queries, draws, stream) for layout, one in zip(layouts, votes)])
        )
    best = max(means, key=lambda queries: means[queries])
    return best, means[best]


def students(layout: Layout, votes: Floats, epsilon: float, queries: int, draws: int, stream: Stream) -> list[float]:
    """Accuracies of students of noisy argmaxes; replacing a party moves each query's counts by √2."""
    from sklearn.linear_model import LogisticRegression

    deviation = np.sqrt(2 * queries) / np.sqrt(float(gaussian_budget(Approx(epsilon, DELTA)).square))
    centre, spread = layout.auxiliary.mean(axis=0), layout.auxiliary.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    rows, test = ((one - centre) / spread for one in (layout.auxiliary, layout.test))
    found = []
    for _ in range(draws):
        asked = stream.permutation(len(rows))[:queries]
        counts = np.eye(len(layout.classes))[votes[:, asked].argmax(axis=-1)].sum(axis=0)
        labels = (counts + deviation * stream.normal(counts.shape)).argmax(axis=1)
        if len(set(labels)) < 2:
            found.append(float(np.mean(layout.truth == labels[0])))
            continue
        student = LogisticRegression(C=STUDENT_L2, max_iter=200).fit(rows[asked], labels)
        found.append(float(np.mean(student.predict(test) == layout.truth)))
    return found


def local_votes(layout: Layout) -> Floats:
    """Of each party's own model on the public rows, (M, N, C)."""
    filled = np.ones(layout.labels.shape, np.bool_)
    found = linear_votes(layout.features, layout.labels, filled, layout.auxiliary, len(layout.classes), _LOCAL_L2)
    return np.asarray(found, np.float64)


def constant(layout: Layout) -> float:
    return float(np.mean(layout.truth == np.bincount(layout.labels.ravel()).argmax()))
