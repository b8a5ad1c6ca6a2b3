"""What a row of the comparison says, and what stands beside every method in the same run.

A case is `METHOD DATASET K=… t=… eps=…`. Accuracies are shares of right classes on test records; of a target that is a
number they are R². `below_pooled` is pooled − ours. Beside ours stand a constant, the parties alone, all records pooled
by the same kind of model, a fit of scikit-learn with its defaults on columns of deviation 1, and diffprivlib at the
same ε where it is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Records
from comity.protocol import auc, log_loss

Floats = NDArray[np.float64]

NOT_INSTALLED = "not installed"
"""What stands for diffprivlib where it can't be imported."""

REACHABLE = "reachable constant"
"""Field of the most accuracy that a constant has which is named under privacy, where a bound is known."""


@dataclass(frozen=True)
class Case:
    """A method by name on a table by name, over `parties` of which `colluders` may pool what they saw."""

    method: str
    dataset: str
    parties: int
    colluders: int
    epsilon: float

    def __str__(self) -> str:
        return f"{self.method} {self.dataset} K={self.parties} t={self.colluders} eps={self.epsilon:g}"


@dataclass(frozen=True)
class Scores:
    """Of one model on test records: accuracy (or R²), and log loss and AUC where it gives probabilities of classes."""

    accuracy: float
    log_loss: float | None = None
    auc: float | None = None


@dataclass(frozen=True)
class Beside:
    """What our runs are compared with. `diffprivlib` is None where it is not installed, or does not do it."""

    pooled: Scores
    constant: float
    own: float
    sklearn: Scores | None = None
    diffprivlib: Scores | None = None
    without: str = ""
    """Why there is no figure of diffprivlib."""


def scores(probabilities: Floats, labels: NDArray[Any]) -> Scores:
    """From probabilities (n, C) of classes that labels are indices of."""
    places = np.asarray(labels, np.int64)
    curve = auc(probabilities[:, 1], places > 0) if probabilities.shape[1] == 2 else None
    return Scores(float(np.mean(probabilities.argmax(1) == places)), log_loss(probabilities, places), curve)


def scores_of_numbers(predicted: Floats, targets: Floats) -> Scores:
    """R² of predicted numbers."""
    return Scores(1 - float(np.mean((predicted - targets) ** 2) / np.var(targets)))


def row(case: Case, runs: Sequence[Scores], beside: Beside, *, note: str = "", **more: Any) -> dict[str, Any]:
    """One line of the table; `runs` are repeats of ours with fresh noise."""
    found = np.array([one.accuracy for one in runs])
    other = beside.diffprivlib
    return {
        "case": str(case),
        "ours": float(found.mean()),
        "spread": float(found.std()),
        "worst": float(found.min()),
        "repeats": len(runs),
        "pooled": beside.pooled.accuracy,
        "constant": beside.constant,
        "own": beside.own,
        "below_pooled": float(beside.pooled.accuracy - found.mean()),
        "log_loss": _mean([one.log_loss for one in runs]),
        "pooled_log_loss": beside.pooled.log_loss,
        "auc": _mean([one.auc for one in runs]),
        "pooled_auc": beside.pooled.auc,
        "sklearn": None if beside.sklearn is None else beside.sklearn.accuracy,
        "diffprivlib": beside.without or None if other is None else other.accuracy,
        **more,
        "note": note,
    }


class Fitted:
    """Fits of scikit-learn, on columns of deviation 1, and of diffprivlib (ε, pure, one owner), on rows in the unit
    ball, by their own defaults: logistic regressions, or linear ones of a number in a range."""

    def __init__(self, train: Records, test: Records, target: tuple[float, float] | None = None) -> None:
        self._train, self._test, self._range = train, test, target

    @cached_property
    def plain(self) -> Scores:
        from sklearn.linear_model import LinearRegression, LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        model = LogisticRegression(max_iter=1000) if self._range is None else LinearRegression()
        return self._scored(make_pipeline(StandardScaler(), model))

    def private(self, epsilon: float, *, seed: int = 0) -> tuple[Scores | None, str]:
        """The scores, or why there are none."""
        make = _diffprivlib("LogisticRegression" if self._range is None else "LinearRegression")
        if make is None:
            return None, NOT_INSTALLED
        if self._range is None:
            options: dict[str, Any] = {"data_norm": 1.0, "max_iter": 1000}
        else:
            options = {"bounds_X": (-1.0, 1.0), "bounds_y": self._range}
        return self._scored(make(epsilon=epsilon, random_state=seed, **options)), ""

    def _scored(self, model: Any) -> Scores:
        labels, asked = np.asarray(self._train.labels), np.asarray(self._test.labels)
        if self._range is None:
            return scores(np.asarray(model.fit(self._train.features, labels).predict_proba(self._test.features)), asked)
        fitted = model.fit(self._train.features, np.clip(labels, *self._range))
        return scores_of_numbers(np.asarray(fitted.predict(self._test.features)), np.clip(asked, *self._range))


def _diffprivlib(name: str) -> Callable[..., Any] | None:
    """A model of the library, if it is there and works beside this scikit-learn."""
    try:
        models = import_module("diffprivlib.models")
    except Exception:  # its own imports break with versions of scikit-learn that it does not know
        return None
    found: Callable[..., Any] = getattr(models, name)
    return found


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
