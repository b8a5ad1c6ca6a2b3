"""A step: a method of a protocol that runs at the sites, and what it may take and give."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from comity.errors import Refused

Step = TypeVar("Step", bound=Callable[..., Any])


@dataclass(frozen=True)
class StepSpec:
    name: str
    sends: str | None
    stacked: bool
    times: int
    takes: tuple[str, ...]
    per_sum: bool
    per_circle: bool
    gives: tuple[str, ...] = ()
    may_give: tuple[str, ...] = ()

    def is_given(self, names: Collection[str]) -> bool:
        """Whether a reply may hold values of these names, and of no others."""
        return set(self.gives) <= set(names) <= {*self.gives, *self.may_give}


def step(
    *,
    sends: str | None = None,
    gives: Sequence[str] = (),
    may_give: Sequence[str] = (),
    stacked: bool = False,
    times: int = 1,
    per_sum: bool = False,
    per_circle: bool = False,
) -> Callable[[Step], Step]:
    """Mark a method as run at a site. Its parameters after `site` are declared releases; `sends` names the release it
    contributes to or computes, `gives` those that it returns to the coordinator (beside that, if need be), `may_give`
    those that some parties return. Both ends check it: a reply with a value more or less is no reply. Where it fails
    before its draw its party contributes neutrally, but not where it gives anything else, for which nothing is neutral.
    `stacked` promises that the body broadcasts over leading axes, so that a simulation may run many parties at once.
    `times` limits how often a run may ask for a step that contributes nothing; `per_sum` allows it once for each secure
    sum of the run instead, under the sum's label, and `per_circle` once for each set of parties that sum
    together, under their place."""
    if stacked and (gives or may_give):
        raise ValueError("a step that runs on stacks of parties contributes and gives nothing else")

    def mark(function: Step) -> Step:
        takes = tuple(inspect.signature(function).parameters)[2:]
        function.__dict__["spec"] = StepSpec(
            function.__name__, sends, stacked, times, takes, per_sum, per_circle, tuple(gives), tuple(may_give)
        )
        return function

    return mark


def spec_of(function: Callable[..., Any]) -> StepSpec:
    spec = getattr(function, "spec", None)
    if not isinstance(spec, StepSpec):
        raise Refused(f"{getattr(function, '__name__', function)!r} is not a step", code="no-step")
    return spec
