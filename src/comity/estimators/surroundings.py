"""What an estimator can tell of how its rows and settings came about: who calls it, and how the rows look.

A fit is charged for what it draws. What was learned from the same records before it, by a step that was fitted on them
or by scores that chose among fits, reaches the model beside the noise. scikit-learn hands a step nothing about the
pipeline or the search that it is in, so the calling frames are read, by their module and their `self` alone. Nothing is
promised where this finds nothing: it can take a claim away, never give one.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from comity.estimators.table import Floats

# They hand rows on as they are, every fit at its own charge.
_NEUTRAL = {"base", "utils", "pipeline", "multiclass", "multioutput"}


def surroundings(X: Floats) -> tuple[str, ...]:
    """Reasons for which a fit that is under way can't claim to be private."""
    found = dict.fromkeys(_callers(inspect.currentframe()))
    if _standardised(X):
        found["the rows have mean 0 and variance 1: they were scaled by figures of these very records"] = None
    return tuple(found)


def _callers(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        package, _, rest = str(frame.f_globals.get("__name__")).partition(".")
        caller = frame.f_locals.get("self")
        if isinstance(caller, Pipeline):
            for _, step in caller.steps[:-1]:
                if _learns(step):
                    yield f"{type(step).__name__} before it was fitted on records that nobody was charged for"
        elif package == "sklearn" and (part := rest.partition(".")[0]) not in _NEUTRAL:
            yield f"fitted inside sklearn.{part}, whose choices and scores on these records nobody was charged for"
        frame = frame.f_back


def _learns(step: Any) -> bool:
    """Whether fitting a pipeline fits this step; a frozen one was fitted elsewhere, by whoever froze it."""
    if step is None or step == "passthrough" or isinstance(step, FrozenEstimator):
        return False
    return bool(get_tags(step).requires_fit)


def _standardised(X: Floats) -> bool:
    """Whether every column that varies has mean 0 and variance 1 to the last digits, which only its own figures do."""
    with np.errstate(over="ignore", invalid="ignore"):
        spread, mean = X.std(axis=0), X.mean(axis=0)
    varies = spread > 0
    return bool(varies.any() and (abs(spread[varies] - 1) < 1e-9).all() and (abs(mean[varies]) < 1e-9).all())
