"""A table or figure of a paper, computed again: the paper's figures beside ours, and a verdict on each trend.

Verdicts are computed from the figures of the same run (`judge_order`, `judge_between`, `judge_near`). Nothing about an
outcome is written down beforehand, so that a change of the code can change a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

Verdict = Literal["agrees", "reversed", "differs"]


@dataclass(frozen=True)
class Measured:
    """A figure of ours: the mean of repeats, and their standard deviation."""

    mean: float
    spread: float = 0.0
    repeats: int = 1

    @classmethod
    def of(cls, values: Sequence[float]) -> Measured:
        return cls(float(np.mean(values)), float(np.std(values)), len(values))


@dataclass(frozen=True)
class Line:
    """One cell of a table, or one point of a figure.

    `paper`      the paper's figure. None where it has none; `source` says why.
    `source`     where the paper has it: "Table 2", "section 5.3, text", "read off the text of Figure 2".
    `published`  the method as its paper has it, here. `default` is ours on the same task.
    `why`        one sentence on what the line shows.
    """

    case: str
    paper: float | None = None
    source: str = ""
    published: Measured | None = None
    default: Measured | None = None
    constant: float | None = None
    non_private: float | None = None
    why: str = ""

    def __post_init__(self) -> None:
        if not self.source:
            raise ValueError(f"{self.case}: say where the paper has this figure, or why it has none")
        if self.published is None and self.default is None and self.non_private is None and not self.why:
            raise ValueError(f"{self.case}: nothing was measured; say why")


@dataclass(frozen=True)
class Trend:
    """What a paper says about its own table or figure, and whether our figures show the same.

    `claim`     the paper's sentence, in our words.
    `evidence`  the figures of this run that the verdict was computed from, as text.
    `why`       the reason, where the verdict is not "agrees".
    """

    claim: str
    verdict: Verdict
    evidence: str
    why: str = ""

    def __post_init__(self) -> None:
        if self.verdict != "agrees" and not self.why:
            raise ValueError(f"{self.claim}: say why it {self.verdict}")


@dataclass(frozen=True)
class Exhibit:
    """One table or figure of one paper.

    `name`      as the paper numbers it: "Table 2", "Figure 3a".
    `title`     what it shows, in a few words.
    `unit`      what the figures are, and which direction is better: "test error, lower is better".
    `setting`   data, parties, epsilons, and how this run differs from the paper's.
    `missing`   what can't be had (a dataset, a figure), and what stands in for it.
    `pictures`  SVG files with the caption that describes them.
    """

    name: str
    title: str
    unit: str
    setting: str
    lines: tuple[Line, ...]
    trends: tuple[Trend, ...]
    missing: tuple[str, ...] = ()
    pictures: tuple[tuple[Path, str], ...] = field(default=())


def judge_order(values: Sequence[float], *, expected: Literal["falling", "rising"], tolerance: float = 0.0) -> Verdict:
    """Whether figures fall or rise in the order given. Steps of at most `tolerance` count as none.

    "agrees" if no step goes the other way and the ends differ by more than the tolerance, "reversed" if the same holds
    of the opposite order, else "differs".
    """
    sign = 1.0 if expected == "rising" else -1.0
    steps = sign * np.diff(np.asarray(values, np.float64))
    whole = sign * (values[-1] - values[0])
    if np.all(steps >= -tolerance) and whole > tolerance:
        return "agrees"
    if np.all(steps <= tolerance) and whole < -tolerance:
        return "reversed"
    return "differs"


def judge_between(better: float, worse: float, *, lower_is_better: bool, tolerance: float = 0.0) -> Verdict:
    """Whether one figure is better than another, as a paper says. Within the tolerance neither is: "differs"."""
    gain = worse - better if lower_is_better else better - worse
    return "agrees" if gain > tolerance else "reversed" if gain < -tolerance else "differs"


def judge_near(ours: float, paper: float, *, tolerance: float) -> Verdict:
    """Whether a figure of ours is the paper's, up to a tolerance."""
    return "agrees" if abs(ours - paper) <= tolerance else "differs"
