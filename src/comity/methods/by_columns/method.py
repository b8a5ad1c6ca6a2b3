"""What all methods have in common whose parties hold different columns of the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Release
from comity.federation.owner.site import Site
from comity.federation.part import Part
from comity.federation.protocol import Protocol, step
from comity.methods.by_columns import rows
from comity.methods.by_columns.alignment import Alignment
from comity.methods.by_columns.products import Products
from comity.methods.by_columns.terms import CHARGED


class ByColumns(Protocol):
    """Rows are matched first, then products across parties stay at the sites as shares."""

    if TYPE_CHECKING:
        # Said by each method. Properties here at run time would be taken for defaults of its fields.
        @property
        def alignment(self) -> str: ...
        @property
        def most(self) -> int: ...
        @property
        def product(self) -> Products: ...

    @cached_property
    def aligned(self) -> Alignment | None:
        return None if self.alignment == "none" else Alignment(self.alignment)

    @cached_property
    def parts(self) -> Mapping[str, Part]:
        return {**({} if self.aligned is None else {"align": self.aligned}), "product": self.product}

    def declared_by_parts(self, consortium: Consortium) -> tuple[Release, ...]:
        """For the plan: the parts check their own letters, and what two of them declare stands here once."""
        before = rows.declared(self.aligned, consortium, self.most)
        names = {release.name for release in before}
        between = (release for release in self.product.declare(consortium).releases if release.name not in names)
        return (*before, *between)

    @step(gives=("size",))
    def count(self, site: Site) -> dict[str, Any]:
        return rows.counted(self.name, site, self.most)

    @property
    def charged_once(self) -> str:
        return CHARGED

    def warnings(self, consortium: Consortium) -> tuple[str, ...]:
        return rows.warned(self.aligned)
