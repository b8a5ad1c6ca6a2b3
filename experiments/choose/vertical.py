"""Constants of vertical regressions, on training rows of Adult, credit defaults, KDD-99, HAR of two classes and CPS.

Runs are those of two parties, one of which may collude, with all columns in one place: what is opened is the same.
Figures are from a quarter of the training rows that nothing was learnt from. The switch to rounds is no value of a
constant that is tried: it compares rounds with the quadratic at several ε, and the least from which on rounds are worth
more on the other datasets is the choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np

from comity.methods.vertical import descent, design, method, posterior
from comity.privacy import Approx, Neighbours, SeededNoise, Unit
from comity.protocol import Consortium
from experiments.accuracy.training_rows import split_training_rows
from experiments.accuracy.vertical import DELTA, QUADRATIC, ROUNDS, Dealt
from experiments.choose.leaving_out import Choice, Utilities, replace_constants, utility

CLASSES: Mapping[str, str] = {"Adult": "adult", "credit defaults": "credit", "KDD-99": "kdd", "HAR": "har-2"}
NUMBERS: Mapping[str, str] = {"CPS": "cps"}
SWITCHES = (0.03, 0.1, 0.3, 1.0)
# Rows of a table at most, and runs of a case: enough to tell what matters, in minutes.
_ROWS, _REPEATS = 16_000, 2


def choices() -> Iterator[Choice]:
    yield _choice_in(method, "TENTHS_FOR_MOMENTS", (2, 4, 6), ROUNDS, CLASSES, (1.0, 10.0))
    yield _choice_in(descent, "WHITENED_FROM", (0.25, 1.0, 4.0), ROUNDS, CLASSES, (1.0, 10.0))
    yield _choice_in(descent, "DEVIATIONS", (2.0, 2.5, 3.0, 4.0, 100.0), ROUNDS, CLASSES, (1.0, 10.0))
    yield _choice_in(posterior, "RIDGE", (0.03, 0.06, 0.125, 0.25, 0.5), QUADRATIC, CLASSES, (0.1, 1.0))
    yield _choice_in(design, "LABEL_SHARE", (0.1, 0.25, 0.5), QUADRATIC, {**CLASSES, **NUMBERS}, (0.1, 1.0))
    yield Choice("vertical.method.SWITCH", SWITCHES, _measure_switch, now=method.SWITCH)


def _choice_in(
    module: Any,
    name: str,
    values: tuple[float, ...],
    method: str,
    tables: Mapping[str, str],
    epsilons: tuple[float, ...],
) -> Choice:
    constant = f"{module.__name__.removeprefix('comity.methods.')}.{name}"
    measure = partial(_measure, constant, method=method, tables=tables, epsilons=epsilons)
    return Choice(constant, values, measure, now=getattr(module, name))


def _measure(
    constant: str, value: float, *, method: str, tables: Mapping[str, str], epsilons: tuple[float, ...]
) -> Utilities:
    with replace_constants({constant: value}):
        return {
            dataset: {f"{name} eps={epsilon:g}": worth(name, method, epsilon) for epsilon in epsilons}
            for dataset, name in tables.items()
        }


def _measure_switch(switch: float) -> Utilities:
    """The quadratic below, rounds from there on."""
    return {
        dataset: {
            f"{name} eps={epsilon:g}": _measure_unchanged(name, ROUNDS if epsilon >= switch else QUADRATIC, epsilon)
            for epsilon in SWITCHES
        }
        for dataset, name in CLASSES.items()
    }


@lru_cache
def _measure_unchanged(name: str, method: str, epsilon: float) -> float:
    return worth(name, method, epsilon)


def worth(name: str, method: str, epsilon: float) -> float:
    """The mean utility of runs over a table's training rows, split inside."""
    held = Dealt(split_training_rows(name, _ROWS), 2)
    consortium = Consortium(
        parties=tuple(held.columns),
        loss=Approx(epsilon, DELTA),
        unit=Unit.RECORD,
        neighbours=Neighbours.REPLACE,
        colluders=1,
    )
    found = [held.scored(held.learnt(method, consortium, SeededNoise(seed))[0]) for seed in range(_REPEATS)]
    return float(np.mean([utility(one.accuracy, one.log_loss) for one in found]))
