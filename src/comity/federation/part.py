"""What a run is put together from: releases that are declared, and the steps that make them at the sites.

A whole method is a part (`federation.protocol`), and so is what it mounts under a name; steps of the latter are asked
for as `name.step`. Two are mounted in every run: `run` (begin, end) and `sum` (the secure sum).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from comity.errors import Refused
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Declaration
from comity.federation.step import StepSpec

RUN, SUM = "run", "sum"
STANDING = (RUN, SUM)
"""What is mounted in every run."""
EVALUATION = "evaluation"
"""What is mounted where a study has an evaluation, and how the names of its own parts begin."""


class Part:
    """Frozen, public, stateless."""

    name: ClassVar[str] = ""

    @property
    def parts(self) -> Mapping[str, Part]:
        """Sub-protocols by the name that they are mounted under."""
        return {}

    def declare(self, consortium: Consortium) -> Declaration:
        raise NotImplementedError(f"{type(self).__name__} declares nothing")

    def find(self, name: str) -> Callable[..., Any]:
        """The step of this name, which is the one it was written under: an alias would be a second way to ask."""
        function: Callable[..., Any] | None = getattr(self, name, None)
        spec = getattr(function, "spec", None)
        if not isinstance(spec, StepSpec) or spec.name != name:
            raise Refused(f"there is no step {name!r}", code="no-step")
        assert function is not None
        return function
