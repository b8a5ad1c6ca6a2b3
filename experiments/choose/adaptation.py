"""What adapts a joint model to an owner's records, on records of owners that differ: hospitals, occupations, levels of
education and states, with each of these left out in turn.

What is looked at is the worth of the adapted model, the mean over owners, on records of the owner that neither the
joint model nor its adaptation has seen. Of tables that the comparison reports, these are training rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from comity.data import Bounded, Records
from comity.learn import adaptation
from experiments.accuracy.owners import OWNERS, deal, fit_joint, labels_of, make_protocol, owners
from experiments.accuracy.rows import scores, scores_of_numbers
from experiments.choose.leaving_out import Choice, Utilities, replace_constants, utility

EPSILONS = (1.0, 3.0)
_SPLITS = 3
# Numbers of their own: the splits of the bar begin at 0.
_FIRST_SPLIT = 1000


@lru_cache(maxsize=64)
def _joint(name: str, epsilon: float, split: int) -> Any:
    held = owners(name)
    train, _ = deal(held, split)
    return fit_joint(make_protocol(held, train), train, epsilon, split)


def _worth(name: str, epsilon: float) -> float:
    held, found = owners(name), []
    for split in range(_FIRST_SPLIT, _FIRST_SPLIT + _SPLITS):
        train, test = deal(held, split)
        protocol, joint = make_protocol(held, train), _joint(name, epsilon, split)
        for owner, own in train.items():
            adapted = protocol.adapt_own(joint, own, owner)
            assert adapted is not None
            found.append(_utility(adapted.model, test[owner], numbers=isinstance(held.schema.target, Bounded)))
    return float(np.mean(found))


def _utility(model: Any, test: Records, *, numbers: bool) -> float:
    if numbers:
        return scores_of_numbers(model.predict(test.features), labels_of(test)).accuracy
    one = scores(np.asarray(model.predict_proba(test.features)), labels_of(test))
    return utility(one.accuracy, one.log_loss)


def _measure(constants: Mapping[str, Any]) -> Utilities:
    with replace_constants(constants, package="comity.learn"):
        return {name: {f"eps={epsilon:g}": _worth(name, epsilon) for epsilon in EPSILONS} for name in OWNERS}


def choices() -> Iterator[Choice]:
    def tried(name: str, values: tuple[Any, ...]) -> Choice:
        return Choice(
            f"adaptation.{name}",
            values,
            lambda value: _measure({f"adaptation.{name}": value}),
            getattr(adaptation, name),
        )

    yield tried("SLOPES", ((1.0,), (0.5, 1.0), (0.5, 0.71, 1.0, 1.41)))
    yield tried("SHIFTS", ((), (3.0,), (10.0,), (1.0, 3.0, 10.0)))
    yield tried("ALONE", ((3.0,), (10.0,), (3.0, 10.0, 30.0), (1.0, 3.0, 10.0, 30.0)))
    yield tried("INTERCEPT", (1.0, 3.0, 10.0))
