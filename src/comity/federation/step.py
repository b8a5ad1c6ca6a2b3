"""A step: a method of a protocol that runs at the sites, and what it may take and give."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from comity.errors import Refused
from comity.federation.declare.consortium import Consortium

Step = TypeVar("Step", bound=Callable[..., Any])
ByTerms = Callable[[Any, Consortium], str]
"""The name of a release that a method chooses by public terms: of the method, in a consortium."""


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
    sends_by: ByTerms | None = None

    def is_given(self, names: Collection[str]) -> bool:
        """Whether a reply may hold values of these names, and of no others."""
        return set(self.gives) <= set(names) <= {*self.gives, *self.may_give}


def step(
    *,
    sends: str | ByTerms | None = None,
    gives: Sequence[str] = (),
    may_give: Sequence[str] = (),
    stacked: bool = False,
    times: int = 1,
    per_sum: bool = False,
    per_circle: bool = False,
) -> Callable[[Step], Step]:
    """Mark a method as run at a site. Its parameters after `site` are declared releases.

    `sends`      the release it contributes to or computes; or how the method names that one in a consortium.
    `gives`      those that it returns to the coordinator, beside that if need be; `may_give` those that some parties
                 return. Both ends check it: a reply with a value more or less is no reply. Where a step fails before
                 its draw its party contributes neutrally, but not where it gives anything else, for which nothing is
                 neutral.
    `stacked`    promises that the body broadcasts over leading axes, so that a simulation may run many parties at once.
    `times`      limits how often a run may ask for a step that contributes nothing; `per_sum` allows it once for each
                 secure sum of the run instead, under the sum's label, and `per_circle` once for each set of parties
                 that sum together, under their place.
    """
    if stacked and (gives or may_give):
        raise ValueError("a step that runs on stacks of parties contributes and gives nothing else")

    def mark(function: Step) -> Step:
        takes = tuple(inspect.signature(function).parameters)[2:]
        function.__dict__["spec"] = StepSpec(
            name=function.__name__,
            sends=None if callable(sends) else sends,
            stacked=stacked,
            times=times,
            takes=takes,
            per_sum=per_sum,
            per_circle=per_circle,
            gives=tuple(gives),
            may_give=tuple(may_give),
            sends_by=sends if callable(sends) else None,
        )
        return function

    return mark


def spec_of(function: Callable[..., Any], consortium: Consortium | None = None) -> StepSpec:
    """What a step promises. Whoever asks for what it sends says in which consortium."""
    spec = getattr(function, "spec", None)
    if not isinstance(spec, StepSpec):
        raise Refused(f"{getattr(function, '__name__', function)!r} is not a step", code="no-step")
    if consortium is None or spec.sends_by is None:
        return spec
    return replace(spec, sends=spec.sends_by(getattr(function, "__self__", None), consortium), sends_by=None)


def steps_of(part: object, consortium: Consortium) -> list[StepSpec]:
    """All steps of a method itself, without those of its parts."""
    kind = type(part)
    names = (name for name in dir(kind) if isinstance(getattr(getattr(kind, name, None), "spec", None), StepSpec))
    return [spec_of(getattr(part, name), consortium) for name in names]
