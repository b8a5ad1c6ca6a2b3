"""The assessment of a simulated result on test records, which would be private outside of a simulation.

A score is a release, so a deployment has no assessment, only what its study declares, noises and pays for
(`evaluation.protocol`). A method whose quality is not one number overrides `Protocol.assess`; the default is for models
that predict. A model is compared with `Baseline`s. `Repeats` shows how far noise moves the figures: the same records
are run repeatedly with fresh simulated noise, and only the figures of these runs are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite, sqrt
from statistics import fmean, pstdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.artefacts.section import Dot, Dots, Grid, Section, read_section, section_page
from comity.data import Records
from comity.federation.evaluation.subgroups import Subgroup
from comity.representation import html_table, short_repr
from comity.untrusted.pages import validate


@dataclass(frozen=True)
class Baseline:
    """An error on test records: of a constant, of each party alone, of all records pooled, of the method without noise.

    A baseline that gives class probabilities also has `log_loss` and `auc`. For parties alone all three are means, and
    `best` is the error of the best of them, found on the same test records.
    """

    name: str
    error: float
    spread: float = 0.0
    note: str = ""
    log_loss: float | None = None
    auc: float | None = None
    best: float | None = None

    @classmethod
    def of_parties(
        cls, errors: Sequence[float], note: str, *, log_loss: float | None = None, auc: float | None = None
    ) -> Baseline:
        """Parties with models of their own records, one error each."""
        return cls(OWN_DATA, fmean(errors), pstdev(errors), note, log_loss, auc, best=min(errors))


OWN_DATA = "own data"
"""The name of the baseline of parties alone, or of a target's holder alone."""
LEAST_SHARE = 0.1
"""A gain below this share of what all records would gain over a constant, without privacy, is next to nothing. Set for
forecasts after a first run of twenty studies (Adult, credit defaults, KDD-99, CPS); no other values were tried."""


def little_to_gain(alone: float, joint: float, attainable: float) -> bool:
    """Whether a joint error is next to no better than that of records alone; `attainable` is by how much all records
    without privacy are better than a constant."""
    return alone - joint <= LEAST_SHARE * max(0.0, attainable)


ERROR = "error"
"""The name of the number that is compared with baselines."""


# A plot has room for this many lines.
_MAX_DRAWN = 40


@dataclass(frozen=True)
class Spread:
    """The spread of one figure over all repeats."""

    mean: float
    spread: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(fmean(values), pstdev(values), min(values), max(values))


@dataclass(frozen=True)
class Repeats:
    """The figures of each repeat, by name, the error first. `how` says what was repeated."""

    how: str
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, how: str, found: Sequence[Assessment]) -> Repeats:
        """Collect the figures that every repeat has."""
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
        """A section of the page: every repeat's error, the smallest first, and a table of all figures."""
        shown = tuple((name, one.mean, one.spread, one.least, one.most) for name, one in self.spreads.items())
        about = f"{self.count} repeats with fresh simulated noise on the same records: {self.how}."
        plots = []
        for name, values in list(self.values.items())[:1]:
            dots = tuple(Dot(str(place), one) for place, one in enumerate(_sort_and_thin(values), start=1))
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


def _sort_and_thin(values: Sequence[float]) -> list[float]:
    """The values in order, evenly thinned to at most `_MAX_DRAWN`."""
    ordered = sorted(values)
    step = max(1, -(-len(ordered) // _MAX_DRAWN))
    return ordered[::step]


def _figures(found: Assessment) -> dict[str, float]:
    error = {} if found.error is None else {ERROR: found.error}
    return error | {figure.name: figure.value for figure in found.figures}


# The log loss of a probability of zero would be infinite.
_MIN_PROBABILITY = 1e-12


@dataclass(frozen=True)
class Figure:
    """A number beside the error; `about` says what it measures and which values are good."""

    name: str
    value: float
    about: str = ""

    @property
    def is_about_bounds(self) -> bool:
        """Whether it says how much the method's own bounds clip, and not how good the result is."""
        return self.name.endswith(" clipped")


@dataclass(frozen=True)
class Assessment:
    """`error` is compared with baselines, where a method has one such number; `measure` says what it measures.

    `figures` are further numbers, `sections` become sections of the page, `repeats` says how far fresh noise moves the
    figures. `tested` is the number of test records, 0 where it is not known. `subgroups` are errors of parts of the
    test records, where the simulation asked for them.
    """

    __repr__ = short_repr

    error: float | None = None
    measure: str = ""
    baselines: tuple[Baseline, ...] = ()
    figures: tuple[Figure, ...] = ()
    sections: tuple[Section, ...] = ()
    repeats: Repeats | None = None
    tested: int = 0
    subgroups: tuple[Subgroup, ...] = ()

    def _repr_html_(self) -> str:
        """Error, baselines and figures, for a notebook. No guarantee covers them."""
        rows = [] if self.error is None else [("error", f"{self.error:.3f}", self.measure)]
        rows += [(one.name, f"{one.error:.3f}", one.note) for one in self.baselines]
        rows += [(one.name, f"{one.value:.3f}", one.about) for one in self.figures]
        return html_table("Assessment of a simulation", ("", "", ""), rows)

    @property
    def is_share(self) -> bool:
        """Whether the error is a share of test records, as that of a classifier is."""
        return self.measure.startswith(_SHARE)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where the error of new records lies with 95 % confidence, as far as the chance of the test records goes;
        None where the error is no share of records."""
        return None if self.error is None else self.interval_of(self.error)

    def interval_of(self, error: float) -> tuple[float, float] | None:
        """The interval of another error on the same test records, such as a baseline's."""
        return wilson_interval(error, self.tested) if self._is_share(error) else None

    def _is_share(self, *errors: float) -> bool:
        """Whether these errors are shares of known test records. A result that was read from a folder may hold any
        number."""
        return self.tested > 0 and self.is_share and all(0 <= error <= 1 for error in errors)

    def can_tell(self, other: float) -> bool:
        """Whether the test records suffice to tell the error from `other`, another share of the same records that is
        predicted wrongly. Two predictors disagree in correctness on at most the share that either gets wrong, which
        bounds the variance of the difference. True where the error is no share of records."""
        if self.error is None or not self._is_share(self.error, other):
            return True
        deviation = sqrt(min(1.0, self.error + other) / self.tested)
        return abs(self.error - other) > _NORMAL_95 * deviation

    @property
    def measured(self) -> bool:
        """Whether there is anything to show."""
        return self.error is not None or bool(self.baselines or self.figures or self.sections)

    def as_json(self) -> dict[str, Any]:
        return {
            "error": self.error,
            "measure": self.measure,
            "baselines": [asdict(baseline) for baseline in self.baselines],
            "figures": [asdict(figure) for figure in self.figures],
            "sections": [section_page(section) for section in self.sections],
            "repeats": None if self.repeats is None else self.repeats.as_json(),
            "tested": self.tested,
            "subgroups": [asdict(subgroup) for subgroup in self.subgroups],
        }

    @classmethod
    def from_json(cls, page: dict[str, Any]) -> Assessment:
        """What `as_json` wrote; KeyError, TypeError or ValueError where it is something else."""
        error, tested = validate(float | None, page["error"]), validate(int, page.get("tested", 0))
        if (error is not None and not isfinite(error)) or not 0 <= tested < 1 << 53:
            raise ValueError("error or tested is no number that a run measures")
        subgroups = validate(tuple[Subgroup, ...], page.get("subgroups", ()))
        for subgroup in subgroups:
            subgroup.check()
        return cls(
            error=error,
            measure=validate(str, page["measure"]),
            baselines=validate(tuple[Baseline, ...], page["baselines"]),
            figures=validate(tuple[Figure, ...], page["figures"]),
            sections=tuple(map(read_section, page["sections"])),
            repeats=None if page.get("repeats") is None else Repeats.from_json(page["repeats"]),
            # Results of earlier releases do not say.
            tested=tested,
            subgroups=subgroups,
        )


_SHARE = "share of"
"""How the `measure` of an error begins that is a share of test records."""
_NORMAL_95 = 1.959964


def wilson_interval(share: float, records: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share that was counted among so many records."""
    square = _NORMAL_95**2 / records
    middle = (share + square / 2) / (1 + square)
    reach = _NORMAL_95 * sqrt(share * (1 - share) / records + square / (4 * records)) / (1 + square)
    # Rounding may leave the share itself outside by an ulp.
    return max(0.0, min(share, middle - reach)), min(1.0, max(share, middle + reach))


def assess_predictor(presented: Any, test: Records, error: float | None, baselines: Sequence[Baseline]) -> Assessment:
    """Assess a model by its error and baselines; with probabilities also by their log loss and, for two classes, AUC.

    `presented` takes encoded rows; a label is the index of its class.
    """
    figures: list[Figure] = []
    predict_proba = getattr(presented, "predict_proba", None)
    if callable(predict_proba) and test.labels is not None and len(test):
        shares = np.asarray(predict_proba(test.features), np.float64)
        labels = np.asarray(test.labels).astype(np.int64)
        found = auc(shares[:, 1], labels > 0) if shares.shape[1] == 2 else None
        if found is not None:
            figures.append(
                Figure("AUC", found, "chance that a record of the second class scores higher than one of the first")
            )
        if labels.min() >= 0 and labels.max() < shares.shape[1]:
            figures.append(Figure("log loss", log_loss(shares, labels), "mean of -log p of the true class, in nats"))
    return Assessment(error, str(getattr(presented, "measure", "")), tuple(baselines), tuple(figures))


def auc(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> float | None:
    """Area under the ROC curve by ranks, ties counted half; None if a class is absent."""
    ones = int(positive.sum())
    zeros = len(positive) - ones
    if not ones or not zeros:
        return None
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def log_loss(shares: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Mean of −log p of the true class."""
    given = shares[np.arange(len(labels)), labels]
    return float(-np.mean(np.log(np.maximum(given, _MIN_PROBABILITY))))
