"""How good a result is, measured in a simulation on records that are private outside of it.

A score is a release: none of this exists in a deployment, unless it is declared, noised and paid for. A method whose
quality is not one number overrides `Protocol.assess`; the default is for models that predict. `Baseline` is what a
model is compared with. `Repeats` shows how far noise moves the figures: the same records are run again and again with
fresh simulated noise, and only the figures of these runs are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, pstdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.artefacts.section import Dot, Dots, Grid, Section, read_section, section_page
from comity.data import Records
from comity.representation import short_repr
from comity.untrusted.pages import validate


@dataclass(frozen=True)
class Baseline:
    """An error on test records: of a constant, of parties alone, of everything pooled, of the method without noise.

    `log_loss` and `auc` stand beside it where what is compared with gives probabilities of classes; of parties alone
    they are means.
    """

    name: str
    error: float
    spread: float = 0.0
    note: str = ""
    log_loss: float | None = None
    auc: float | None = None


ERROR = "error"
"""The name of the one number that baselines are compared with."""


# A plot has room for so many lines.
_DRAWN = 40


@dataclass(frozen=True)
class Spread:
    """Of one figure over all repeats."""

    mean: float
    spread: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(fmean(values), pstdev(values), min(values), max(values))


@dataclass(frozen=True)
class Repeats:
    """The figures of each repeat by their names, the error first. `how` says what a repeat was."""

    how: str
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, how: str, found: Sequence[Assessment]) -> Repeats:
        """Figures that every repeat has."""
        rows = [_figures(one) for one in found]
        names = [name for name in (rows[0] if rows else {}) if all(name in row for row in rows)]
        return cls(how, {name: tuple(row[name] for row in rows) for name in names})

    @property
    def count(self) -> int:
        return max(map(len, self.values.values()), default=0)

    @property
    def spreads(self) -> dict[str, Spread]:
        return {name: Spread.of(values) for name, values in self.values.items()}

    @property
    def worst(self) -> float | None:
        """The largest error."""
        return max(self.values[ERROR]) if ERROR in self.values else None

    def sentence(self) -> str:
        """Mean, spread and worst of the error, or of the first figure."""
        if not self.values:
            return f"{self.count} repeats measured nothing"
        name, spread = next(iter(self.spreads.items()))
        worst = f", worst {self.worst:.3f}" if name == ERROR else f", {spread.least:.3f} to {spread.most:.3f}"
        return f"{name} {spread.mean:.3f} ± {spread.spread:.3f}{worst} in {self.count} repeats ({self.how})"

    def section(self) -> Section:
        """A part of the page: every repeat's error, the smallest first, and all figures in a table."""
        shown = tuple((name, one.mean, one.spread, one.least, one.most) for name, one in self.spreads.items())
        about = f"{self.count} repeats with fresh simulated noise on the same records: {self.how}."
        plots = []
        for name, values in list(self.values.items())[:1]:
            dots = tuple(Dot(str(place), one) for place, one in enumerate(_thinned(values), start=1))
            plots.append(Dots(f"The {name} of each repeat", name, dots))
        table = Grid(("figure", "mean", "spread", "least", "most"), shown, about)
        return Section("Repeats", plots=tuple(plots), tables=(table,))

    def as_json(self) -> dict[str, Any]:
        spreads = {name: vars(one) for name, one in self.spreads.items()}
        return {"how": self.how, "count": self.count, "worst": self.worst, "spreads": spreads, "values": self.values}

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> Repeats:
        """What `as_json` wrote; KeyError, TypeError or ValueError where it is something else."""
        return cls(str(page["how"]), {str(k): tuple(map(float, v)) for k, v in page["values"].items()})


def _thinned(values: Sequence[float]) -> list[float]:
    """Sorted, and at most `_DRAWN` of them, evenly."""
    ordered = sorted(values)
    step = max(1, -(-len(ordered) // _DRAWN))
    return ordered[::step]


def _figures(found: Assessment) -> dict[str, float]:
    error = {} if found.error is None else {ERROR: found.error}
    return error | {figure.name: figure.value for figure in found.figures}


# A probability of zero for what happened would cost infinitely much.
_LEAST = 1e-12


@dataclass(frozen=True)
class Figure:
    """One number beside the error; `about` says what it counts and which values are good ones."""

    name: str
    value: float
    about: str = ""


@dataclass(frozen=True)
class Assessment:
    """`error` is the one number that baselines are compared with, where a method has one, and `measure` what it counts.
    `figures` stand beside it, `sections` become parts of the page, `repeats` say how far fresh noise carries them."""

    __repr__ = short_repr

    error: float | None = None
    measure: str = ""
    baselines: tuple[Baseline, ...] = ()
    figures: tuple[Figure, ...] = ()
    sections: tuple[Section, ...] = ()
    repeats: Repeats | None = None

    @property
    def measured(self) -> bool:
        """Whether anything was."""
        return self.error is not None or bool(self.baselines or self.figures or self.sections)

    def as_json(self) -> dict[str, Any]:
        return {
            "error": self.error,
            "measure": self.measure,
            "baselines": [asdict(baseline) for baseline in self.baselines],
            "figures": [asdict(figure) for figure in self.figures],
            "sections": [section_page(section) for section in self.sections],
            "repeats": None if self.repeats is None else self.repeats.as_json(),
        }

    @classmethod
    def from_json(cls, page: dict[str, Any]) -> Assessment:
        """What `as_json` wrote; KeyError, TypeError or ValueError where it is something else."""
        return cls(
            error=validate(float | None, page["error"]),
            measure=validate(str, page["measure"]),
            baselines=validate(tuple[Baseline, ...], page["baselines"]),
            figures=validate(tuple[Figure, ...], page["figures"]),
            sections=tuple(map(read_section, page["sections"])),
            repeats=None if page.get("repeats") is None else Repeats.from_json(page["repeats"]),
        )


def assess_predictor(presented: Any, test: Records, error: float | None, baselines: Sequence[Baseline]) -> Assessment:
    """The error of a model beside its baselines; with probabilities also their log loss and, of two classes, the AUC.

    `presented` takes encoded rows, and labels are the places of its classes.
    """
    figures: list[Figure] = []
    foretell = getattr(presented, "predict_proba", None)
    if callable(foretell) and test.labels is not None and len(test):
        shares = np.asarray(foretell(test.features), np.float64)
        labels = np.asarray(test.labels).astype(np.int64)
        found = auc(shares[:, 1], labels > 0) if shares.shape[1] == 2 else None
        if found is not None:
            figures.append(
                Figure("AUC", found, "chance that of two records, one of each class, the right one scores higher")
            )
        if labels.min() >= 0 and labels.max() < shares.shape[1]:
            figures.append(Figure("log loss", log_loss(shares, labels), "mean surprise at the true class, in nats"))
    return Assessment(error, str(getattr(presented, "measure", "")), tuple(baselines), tuple(figures))


def auc(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> float | None:
    """Area under the ROC curve by ranks, ties counted half; None where one of the classes is absent."""
    ones = int(positive.sum())
    zeros = len(positive) - ones
    if not ones or not zeros:
        return None
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def log_loss(shares: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Mean of −log p of the class that was the case."""
    given = shares[np.arange(len(labels)), labels]
    return float(-np.mean(np.log(np.maximum(given, _LEAST))))
