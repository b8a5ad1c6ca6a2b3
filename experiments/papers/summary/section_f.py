"""Section F of Sarpatwar et al. (2019): a curator that receives hashes alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from comity.methods.summary import measure_choice
from experiments.papers.exhibit import Exhibit, Line, Measured, Trend, judge_between
from experiments.papers.summary.published_runs import run_published
from experiments.papers.summary.tasks import SOURCES, Task, task


def hash_scores(one: Task, count: int) -> tuple[float, float, float]:
    """The accuracy of a linear SVM on hashes, of one on the records behind them, and the largest error of a kernel
    value that the curator computes from two hashes."""
    outcome = run_published(one, count, bid_sign="corrected", deliver="hashes", results=True)
    bought = outcome.presented
    hashed = bought.with_seed(outcome.received["consumer-0"].own["hash_seed"])
    accuracy = float((bought.linear_model().predict(hashed(one.test.features)) == one.test.labels).mean())
    rows = []
    for owner, records in one.owners.items():
        hashes = hashed(records.features)
        for row in bought.rows[[bought.bought.owners[place] == owner for place in bought.sellers]]:
            rows.append((row, records.features[int(np.abs(hashes - row).max(axis=1).argmin())]))
    order = {row.tobytes(): record for row, record in rows}
    behind = np.array([order[row.tobytes()] for row in bought.rows])
    choice = measure_choice("records", behind, bought.labels, target=behind, test=one.test, gamma=one.gamma)
    apart = ((behind[:, None] - behind[None]) ** 2).sum(axis=2)
    error = float(
        np.abs(bought.rows @ bought.rows.T - np.exp(-one.gamma * apart))[~np.eye(len(rows), dtype=bool)].max()
    )
    return accuracy, choice.accuracy or 0.0, error


def section_f(*, quick: bool, out: Path) -> tuple[Exhibit, ...]:
    name, found = "cps", []
    for number in range(1 if quick else 4):
        one = task(SOURCES[name](), number, "one owner", name)
        found.append(hash_scores(one, 100))
    by_hashes, by_records, errors = (Measured.of(column) for column in zip(*found))
    return (
        Exhibit(
            name="Section F",
            title="a less trusted curator: an SVM on hashes alone",
            unit="accuracy on test records, higher is better; and the largest error of a kernel value",
            setting="Tax units of the CPS, p = 100, bids corrected. Owners and consumer share the seed of the hashes.",
            lines=(
                Line(
                    "linear SVM on hashes",
                    source="'useful to train kernel based models', section 3; no value",
                    published=by_hashes,
                    non_private=by_records.mean,
                    why="no privacy: a linear SVM on the records behind the same hashes",
                ),
                Line(
                    "largest error of h1(x) h1(y) against the kernel",
                    source="not in the text",
                    published=errors,
                    why="from hashes the curator knows distances to this accuracy",
                ),
            ),
            trends=(hash_model_trend(by_hashes.mean, by_records.mean),),
            missing=("section F itself, in an appendix that the published text does not have.",),
        ),
    )


def hash_model_trend(by_hashes: float, by_records: float) -> Trend:
    return Trend(
        "Hashes serve to train kernel models.",
        judge_between(by_hashes, by_records - 0.05, lower_is_better=False),
        f"{by_hashes:.3f} on hashes, {by_records:.3f} on the records behind them; serving is taken as within 5 points",
        "140 features approximate the kernel too coarsely for a hundred records",
    )
