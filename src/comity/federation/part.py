"""Parts and steps: what a run consists of.

A part declares releases and has the steps that make them at the sites. A whole method is a part
(`federation.protocol`), and so is a sub-protocol that it mounts under a name; steps of the latter are asked for as
`name.step`. Every run mounts `run` (begin, end) and `sum` (the secure sum).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from comity.errors import Refused
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Declaration

Step = TypeVar("Step", bound=Callable[..., Any])
ByTerms = Callable[[Any, Consortium], str]
"""Chooses the name of a release from public terms: the method's options and the consortium."""


@dataclass(frozen=True)
class StepSpec:
    name: str
    sends: str | None
    stacked: bool
    times: int
    takes: tuple[str, ...]
    per_sum: bool
    per_sum_group: bool
    gives: tuple[str, ...] = ()
    may_give: tuple[str, ...] = ()
    sends_by: ByTerms | None = None

    def is_given(self, names: Collection[str]) -> bool:
        """Whether a reply may hold values of exactly these names."""
        return set(self.gives) <= set(names) <= {*self.gives, *self.may_give}


def step(
    *,
    sends: str | ByTerms | None = None,
    gives: Sequence[str] = (),
    may_give: Sequence[str] = (),
    stacked: bool = False,
    times: int = 1,
    per_sum: bool = False,
    per_sum_group: bool = False,
) -> Callable[[Step], Step]:
    """Mark a method as run at a site. Its parameters after `site` are declared releases.

    `sends`      The release that it contributes to or computes, or a function that chooses its name.
    `gives`      The releases that it returns to the coordinator besides; `may_give` those that some parties return.
                 Both ends refuse a reply with more or fewer values. A party whose step fails before its draw
                 contributes the neutral value, unless the step gives other values, for which nothing is neutral.
    `stacked`    Promises that the body broadcasts over leading axes, so a simulation may run many parties at once.
    `times`      Limits how often a run may ask for a step that contributes nothing. `per_sum` allows it once for each
                 secure sum of the run instead, under the sum's label; `per_sum_group` once for each group of parties
                 that sum together, under the group's place.
    """
    if stacked and (gives or may_give):
        raise ValueError("a step that runs on stacks of parties can only contribute; leave gives and may_give out")

    def mark(function: Step) -> Step:
        takes = tuple(inspect.signature(function).parameters)[2:]
        function.__dict__["spec"] = StepSpec(
            name=function.__name__,
            sends=None if callable(sends) else sends,
            stacked=stacked,
            times=times,
            takes=takes,
            per_sum=per_sum,
            per_sum_group=per_sum_group,
            gives=tuple(gives),
            may_give=tuple(may_give),
            sends_by=sends if callable(sends) else None,
        )
        return function

    return mark


def spec_of(function: Callable[..., Any], consortium: Consortium | None = None) -> StepSpec:
    """The specification of a step; given a consortium, with the name of the release that it sends."""
    spec = getattr(function, "spec", None)
    if not isinstance(spec, StepSpec):
        raise Refused(f"{getattr(function, '__name__', function)!r} is not a step", code="no-step")
    if consortium is None or spec.sends_by is None:
        return spec
    return replace(spec, sends=spec.sends_by(getattr(function, "__self__", None), consortium), sends_by=None)


def steps_of(part: object, consortium: Consortium) -> list[StepSpec]:
    """All steps of a method, without those of its parts."""
    kind = type(part)
    names = (name for name in dir(kind) if isinstance(getattr(getattr(kind, name, None), "spec", None), StepSpec))
    return [spec_of(getattr(part, name), consortium) for name in names]


RUN, SUM = "run", "sum"
ALWAYS_MOUNTED = (RUN, SUM)
"""Mounted in every run."""
EVALUATION = "evaluation"
"""Mounted if a study has an evaluation; the mounts of its parts begin with it."""


class Part:
    """Declares releases and has the steps that make them. Frozen, public and stateless."""

    name: ClassVar[str] = ""

    @property
    def parts(self) -> Mapping[str, Part]:
        """Sub-protocols by the name that they are mounted under."""
        return {}

    def declare(self, consortium: Consortium) -> Declaration:
        raise NotImplementedError(f"{type(self).__name__} declares nothing")

    def find(self, name: str) -> Callable[..., Any]:
        """The step that was defined under this name. An alias is refused: it would allow a second ask."""
        function: Callable[..., Any] | None = getattr(self, name, None)
        spec = getattr(function, "spec", None)
        if not isinstance(spec, StepSpec) or spec.name != name:
            raise Refused(f"there is no step {name!r}", code="no-step")
        assert function is not None
        return function
