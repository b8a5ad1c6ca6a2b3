"""What an owner gains by a joint model, and by adapting it: three errors on the owner's records, for the owner alone.

An owner that joins a study has a model of its own records, the joint model, and the joint model adapted to its records.
It compares them by cross-fitting: models that it fits are measured on records that they have not seen. The joint model
has seen the records too, through noise. All of it is exact. It is written beside the owner's results and not among
them, it is in no message, and a `repr` does not show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite, sqrt

import numpy as np
from numpy.typing import NDArray

from comity.artefacts.artefact import Artefact
from comity.artefacts.section import Grid, Section

Floats = NDArray[np.float64]

# A difference beyond this many standard deviations is not explained by chance.
_MAX_DEVIATIONS = 2.0

ADAPTATION_NOTE = (
    "when the run ends, each owner's site adapts the model to its owner's records (an intercept, a slope, own weights) "
    "and compares it with a model of these records alone; this stays with the owner and costs nothing"
)
"""What a plan says of it."""


_MEASURED = (
    "Models of single owners are measured on records that they were not fitted on. The joint model has seen these "
    "records through noise."
)


@dataclass(frozen=True)
class OwnComparison:
    """Errors on `records` records of one owner: of a model of these records `alone`, of the `joint` model, and of the
    joint model `adapted` to them. Chance explains a difference from `alone` up to `margin`. `measure` says what an
    error is."""

    records: int = field(repr=False)
    alone: float = field(repr=False)
    joint: float = field(repr=False)
    adapted: float = field(repr=False)
    margin: float = field(repr=False)
    measure: str

    def __post_init__(self) -> None:
        if not all(isfinite(one) and one >= 0 for one in (self.alone, self.joint, self.adapted, self.margin)):
            raise ValueError("errors and their margin are finite numbers that are not negative")

    @classmethod
    def of(cls, alone: Floats, joint: Floats, adapted: Floats, measure: str) -> OwnComparison:
        """From each record's loss by each model."""
        best = joint if joint.mean() < adapted.mean() else adapted
        margin = _MAX_DEVIATIONS * float(np.std(alone - best)) / sqrt(len(alone))
        return cls(
            records=len(alone),
            alone=float(alone.mean()),
            joint=float(joint.mean()),
            adapted=float(adapted.mean()),
            margin=margin,
            measure=measure,
        )

    @property
    def gain(self) -> float:
        """By how much the better of the joint and the adapted model is better than the owner alone."""
        return self.alone - min(self.joint, self.adapted)

    @property
    def verdict(self) -> str:
        if self.gain > self.margin:
            return "Joining pays"
        if self.gain < -self.margin:
            return "Your own records alone do better"
        return "Your own records would do as well, as far as so many can tell"

    @property
    def sentence(self) -> str:
        """For the owner's terminal."""
        return (
            f"alone {self.alone:.3g}, joint {self.joint:.3g}, adapted {self.adapted:.3g} ({self.measure}; "
            f"{self.records:,} records, cross-fitted). {self.verdict}"
        )

    def section(self) -> Section:
        """For a page that stays with the owner."""
        heads = ("model", self.measure)
        rows = (
            ("your own records alone", self.alone),
            ("joint model", self.joint),
            ("joint model adapted to your records", self.adapted),
        )
        about = f"From {self.records:,} records of yours. {_MEASURED} These figures are exact: do not pass them on."
        return Section("Alone, joint, adapted", (f"{self.verdict}.",), tables=(Grid(heads, rows, about),))


@dataclass(frozen=True, eq=False)
class Adaptation:
    """The joint model as it is `adapted` to one owner's records, and the comparison on these records."""

    model: Artefact = field(repr=False)
    comparison: OwnComparison


def owners_section(found: Mapping[str, OwnComparison]) -> Section:
    """Simulation only: every owner's three errors, the owner that gains least first."""
    ordered = sorted(found.items(), key=lambda pair: pair[1].gain)
    rows = tuple((name, one.records, one.alone, one.joint, one.adapted) for name, one in ordered)
    losing = sum(one.gain < -one.margin for one in found.values())
    paying = sum(one.gain > one.margin for one in found.values())
    count = len(found)
    sentences = (
        f"Beyond chance, {paying} of {count} owners gain by joining and {losing} lose.",
        *(("The own records of the others would do as well.",) if paying + losing < count else ()),
    )
    measure = ordered[0][1].measure if ordered else ""
    table = Grid(("owner", "records", "alone", "joint", "adapted"), rows, f"Errors: {measure}. {_MEASURED}")
    return Section("Each owner: alone, joint, adapted", sentences, tables=(table,))
