"""One constant, the values that are tried, and the best of them: over all datasets, and with each of them left out.

Utilities of cases are compared; higher is better. A case is a table at an ε. Tables made of the same records are one
dataset and are left out together. Datasets count alike, however many cases each has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pkgutil import resolve_name
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

Utilities = Mapping[str, Mapping[str, float]]
"""By dataset, then by case."""

LOG_LOSS = 0.2
"""What a nat is worth beside accuracy: 0.004 of accuracy is as much as 5 % of a log loss of 0.4. Not tuned on data."""


def utility(accuracy: float, log_loss: float | None = None) -> float:
    return accuracy - LOG_LOSS * (log_loss or 0.0)


@dataclass(frozen=True)
class Choice:
    """`constant` as it is called in the code; `measure` tries a value."""

    constant: str
    values: tuple[Any, ...]
    measure: Callable[[Any], Utilities]
    now: Any = None

    def try_values(self) -> Chosen:
        return Chosen(self.constant, self.now, {str(value): self.measure(value) for value in self.values})


@dataclass(frozen=True)
class Chosen:
    """The utility of every value."""

    constant: str
    now: Any
    found: Mapping[str, Utilities]

    @property
    def datasets(self) -> tuple[str, ...]:
        return tuple(next(iter(self.found.values())))

    def worth(self, value: str, datasets: tuple[str, ...]) -> float:
        """The mean over datasets of the mean over their cases."""
        return float(np.mean([np.mean(list(self.found[value][name].values())) for name in datasets]))

    def best(self, datasets: tuple[str, ...]) -> str:
        return max(self.found, key=lambda value: self.worth(value, datasets))

    @property
    def without(self) -> dict[str, tuple[str, float]]:
        """For each dataset left out: what the others choose, and how much less that is worth to it than its own."""
        out = {}
        for name in self.datasets if len(self.datasets) > 1 else ():
            others = tuple(one for one in self.datasets if one != name)
            chosen = self.best(others)
            out[name] = chosen, self.worth(self.best((name,)), (name,)) - self.worth(chosen, (name,))
        return out

    def as_json(self) -> dict[str, Any]:
        return {
            "constant": self.constant,
            "now": self.now,
            "worth": {value: self.worth(value, self.datasets) for value in self.found},
            "best": self.best(self.datasets),
            "without": self.without,
            "found": self.found,
        }

    def __str__(self) -> str:
        tried = "  ".join(f"{value}: {self.worth(value, self.datasets):.4f}" for value in self.found)
        lines = [f"{self.constant} (now {self.now}): best {self.best(self.datasets)} of {tried}"]
        lines += [
            f"    without {name}: {chosen}, worth {lost:.4f} less there than its own best"
            for name, (chosen, lost) in self.without.items()
        ]
        return "\n".join(lines)


def make_choices(home: str, words: Sequence[str] = ()) -> Iterator[Chosen]:
    """Try the values of each choice that the function at `home` yields; with `words`, of constants whose name contains
    one of them."""
    offered: Iterator[Choice] = resolve_name(home)()
    with threadpool_limits(1, user_api="blas"):
        for choice in offered:
            if not words or any(word in choice.constant for word in words):
                yield choice.try_values()


@contextmanager
def replace_constants(constants: Mapping[str, Any], package: str = "comity.methods") -> Iterator[None]:
    """Replace constants, given as "module.NAME" under a package, inside the block."""
    before = []
    try:
        for name, value in constants.items():
            module, _, own = f"{package}.{name}".rpartition(".")
            holder = import_module(module)
            before.append((holder, own, getattr(holder, own)))
            setattr(holder, own, value)
        yield
    finally:
        for holder, own, value in reversed(before):
            setattr(holder, own, value)
