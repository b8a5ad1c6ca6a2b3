"""How far the noise of a run carries its figures: the same records, again and again, with fresh simulated noise.

Simulation only. Nothing of the further runs is kept but their figures, which like all exact figures of a simulation no
guarantee covers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

from comity.artefacts.section import Dot, Dots, Grid, Section

if TYPE_CHECKING:
    from comity.federation.assessment import Assessment

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
