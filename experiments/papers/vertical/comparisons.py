"""What the tables of Xu, Yuan and Wu (2019) share: FM in two forms, seeded noise, and verdicts on several figures.

"FM as printed" is Algorithm 1 with no repair. "FM, Zhang's repair" adds the ridge and the trimming of Zhang et al.
(2012), whose mechanism the paper uses; the paper does not print whether it did.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.methods.vertical.published import Repair
from comity.privacy import SeededNoise
from experiments.papers.exhibit import Trend, Verdict
from experiments.papers.vertical.functional_mechanism import solve_noisily

Floats = NDArray[np.float64]
Found = dict[str, list[float]]

EPSILONS = (0.1, 1.0, 10.0)
REPAIRS: dict[str, Repair] = {"FM as printed": "none", "FM, Zhang's repair": "zhang"}
NO_SETTINGS = "The paper gives no settings for the methods that it compares with."
DPFW_NAMES = {
    "DPFW-C": "DPFW-C",
    **{f"DPFW-{parties}": f"DPFW-{parties}, after its abstract" for parties in (2, 4, 8)},
}
"""What lines call DPFW: over K parties it is not the original."""
DPFW_K = (
    "DPFW-C is the private Frank-Wolfe of Talwar, Thakurta and Zhang (2015). DPFW over K parties follows the abstract "
    "of Lou and Cheung (2018): sampled blocks, features shared as private projections. The text of that paper was not "
    "at hand; it is not their algorithm by the book."
)


@dataclass(frozen=True)
class Printed:
    """A figure of the paper with its standard deviation."""

    mean: float
    spread: float


@dataclass(frozen=True)
class SquaredError:
    features: Floats
    labels: Floats

    def __call__(self, weights: Floats, constant: float = 0.0) -> float:
        return float(np.mean((self.features @ weights + constant - self.labels) ** 2))


def perturb_objective(
    polynomial: Floats, width: int, epsilon: float, seeds: tuple[str | int, ...], draws: int, logistic: bool
) -> Iterable[tuple[str, Floats]]:
    """FM as printed and with Zhang's repair, on the same noise."""
    for name, draw_number in product(REPAIRS, range(draws)):
        source = seeded_source("FM", *seeds, f"{epsilon:g}", draw_number)
        weights = solve_noisily(
            polynomial, width, epsilon=epsilon, source=source, logistic=logistic, repair=REPAIRS[name]
        )
        yield f"{name} eps={epsilon:g}", weights


def seeded_source(*label: str | float) -> SeededNoise:
    return SeededNoise(int(Stream.public("reproduce vertical", *map(str, label)).words(1)[0]))


def split_rows(data: str, count: int, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = Stream.public("reproduce vertical", "split", data, number).permutation(count)
    return order[: round(0.8 * count)], order[round(0.8 * count) :]


def put(values: Found, case: str, value: float) -> None:
    values.setdefault(case, []).append(float(value))


def mean_at(values: Found, name: str, epsilon: float) -> float:
    return fmean(values[f"{name} eps={epsilon:g}"])


def series(values: Found, name: str) -> str:
    return numbers(mean_at(values, name, epsilon) for epsilon in EPSILONS)


def numbers(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def judge_all(verdicts: Iterable[Verdict]) -> Verdict:
    """One verdict for several comparisons: they all agree, are all reversed, or the claim differs."""
    found = set(verdicts)
    return found.pop() if len(found) == 1 else "differs"


def make_trend(claim: str, verdict: Verdict, evidence: str, why: str) -> Trend:
    return Trend(claim, verdict, evidence, "" if verdict == "agrees" else why)


def describe_spreads(rows: Iterable[Sequence[Printed]]) -> str:
    """What the paper's standard deviations say."""
    most = max(one.spread / one.mean for row in rows for one in row)
    return (
        f"The paper's standard deviations are up to {most:.3g} times its means. Ten errors can't have more than "
        f"{np.sqrt(10):.3g} times, and 3 only if nine of them are next to nothing beside the tenth."
    )
