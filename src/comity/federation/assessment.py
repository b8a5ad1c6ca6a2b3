"""How good what was presented is, measured in a simulation on records that are private outside of it.

A score is a release: none of this exists in a deployment, unless it is declared, noised and paid for like anything
else. A method whose quality is not one number overrides `Protocol.assess`; the default is for models that predict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.artefacts.section import Section, read_section, section_page
from comity.data import Records
from comity.federation.baseline import Baseline
from comity.federation.repeats import Repeats
from comity.representation import short_repr
from comity.untrusted.pages import typed

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
            error=typed(float | None, page["error"]),
            measure=typed(str, page["measure"]),
            baselines=typed(tuple[Baseline, ...], page["baselines"]),
            figures=typed(tuple[Figure, ...], page["figures"]),
            sections=tuple(map(read_section, page["sections"])),
            repeats=None if page.get("repeats") is None else Repeats.from_json(page["repeats"]),
        )


def of_predictor(presented: Any, test: Records, error: float | None, baselines: Sequence[Baseline]) -> Assessment:
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
