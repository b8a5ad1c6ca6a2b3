"""The base class of methods whose parties hold different columns of the same rows.

It says which rows the parties multiply (those that they hold in one order already, or those that an alignment finds),
on which terms such a study runs, and against whom it holds. Errors name keys of the method's table in a study.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from comity.data import Schema
from comity.errors import DataError, StudyError
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Release
from comity.federation.declare.protection import Public
from comity.federation.declare.release import Count
from comity.federation.owner.site import Site
from comity.federation.part import Part
from comity.federation.protocol import Protocol, step
from comity.methods.by_columns.alignment import Alignment
from comity.methods.by_columns.products import Products
from comity.privacy.unit import Unit

if TYPE_CHECKING:
    from comity.federation.coordinator.parties import Parties

NOT_AGAINST = "not a party that runs a modified program, which can read rows of the others"
"""Noise covers rows within their bound, and nobody else sees whether a party's rows are: a party that multiplies a row
reads what its peers hold of the same person (docs/security.md)."""


def release_size(max_rows: int, why: str) -> Release:
    """The number of a party's rows, where no alignment finds the common ones; `why` says what it tells."""
    return Release(name="size", source=EVERY_PARTY, to=COORDINATOR, protection=Public(why), form=Count(max_rows))


class ByColumns(Protocol):
    """Rows are matched first, then shares of products across parties stay at the sites."""

    needs_compiler: ClassVar[bool] = True
    reads_by_position: ClassVar[bool] = True

    # Fields of each method.
    schema: Schema
    columns: Mapping[str, tuple[str, ...]]
    alignment: str
    products: str
    max_rows: int

    @property
    @abstractmethod
    def product(self) -> Products: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alignment != "none" and self.schema.identifier is None:
            raise StudyError(
                f"{self.name}.alignment = {self.alignment!r} needs an identifier; declare [identifier] in the schema",
                key=f"{self.name}.alignment",
            )

    @cached_property
    def aligned(self) -> Alignment | None:
        return None if self.alignment == "none" else Alignment(self.alignment)

    @cached_property
    def parts(self) -> Mapping[str, Part]:
        return {**({} if self.aligned is None else {"align": self.aligned}), "product": self.product}

    def streams(self, consortium: Consortium) -> bool:
        """Rows are read some at a time. A list of blinded points goes around in one piece, and which rows a study holds
        out is decided over all identifiers at once."""
        return self.alignment != "ecdh" and consortium.evaluation is None

    # On which terms, and against whom.

    def protects(self, unit: Unit) -> bool:
        """With an alignment a person has one row; without one nobody checks that it has."""
        return unit is Unit.RECORD or (unit is Unit.PERSON and self.alignment != "none")

    def check_parties(self, consortium: Consortium) -> None:
        """Every party holds columns that the others lack: none can be missing, and there are at least two."""
        if consortium.dropouts:
            raise StudyError(
                f"{self.name} needs every party to the end where each holds its own columns, found privacy.dropouts = "
                f"{consortium.dropouts}; set it to 0: a run that lost a party waits for it",
                key="privacy.dropouts",
            )
        if tuple(consortium.parties) != tuple(self.columns):
            raise StudyError(
                f"the columns are those of {', '.join(self.columns)}, the parties are "
                f"{', '.join(consortium.parties)}; give every party its columns, in the same order",
                key="parties",
            )
        if consortium.size < 2:
            raise StudyError(
                f"{self.name} multiplies columns of different parties, found one party; add another, or work at home",
                key="parties",
            )

    def describe_adversary(self, consortium: Consortium, released: str | None, also: str = "") -> str:
        """Whom the noise, the products and the alignment all hold against, and whom they do not. `released` names what
        a coordinator keeps to itself where no party may read it; None where every party reads it. `also` names further
        adversaries.

        A dealer must be honest for more than secrecy. Dealt words enter what is opened, and no party can tell what they
        add up to: a dealer of false words moves the opened sums as far as it likes, also by a record.
        """
        among = f"up to {consortium.colluders} of {consortium.size} parties"
        deals, matches = self.products == "dealer", self.alignment == "keyed"
        if deals or matches:
            # Together with a party, a dealer could read the columns of its peers, and a matcher could try ids.
            does = " and ".join(word for word, holds in (("deals", deals), ("matches ids", matches)) if holds)
            held = f"an honest-but-curious coordinator that works with no party (it {does})"
            held += f", and {among} together" if consortium.colluders else ""
            held += also
            held += "; the sensitivity assumes that the coordinator deals correctly" if deals else ""
        elif consortium.colluders:
            held = f"an honest-but-curious coordinator with {among}{also}"
        else:
            kept = f", who keeps {released} to itself" if released else ""
            held = f"an honest-but-curious coordinator alone{kept}{also}"
        return f"{held}; {NOT_AGAINST}"

    @property
    def charged_once(self) -> str:
        return "one person's columns at all parties together; every ledger is charged for this one loss"

    # What leaves before the method's own releases.

    def declared_by_matching(self, consortium: Consortium) -> tuple[Release, ...]:
        """The releases that find the common rows."""
        if self.aligned is not None:
            return self.aligned.declare(consortium).releases
        return (release_size(self.max_rows, "how many records a party has; replacing one does not change it"),)

    def declared_by_parts(self, consortium: Consortium) -> tuple[Release, ...]:
        """The releases of the alignment and of the products. A release that both declare is listed once."""
        before = self.declared_by_matching(consortium)
        names = {release.name for release in before}
        between = (release for release in self.product.declare(consortium).releases if release.name not in names)
        return (*before, *between)

    # The coordinator's side.

    def agree_on_rows(self, parties: Parties) -> int:
        """How many rows all parties share; from here on every party has them in one order."""
        rows = (
            self._require_equal_sizes(parties) if self.aligned is None else self.aligned.coordinate_alignment(parties)
        )
        if rows > self.max_rows:
            raise StudyError(
                f"the products have room for {self.max_rows} rows, the parties share {rows}; raise "
                f"{self.name}.max_rows",
                key=f"{self.name}.max_rows",
            )
        return rows

    def _require_equal_sizes(self, parties: Parties) -> int:
        sizes = {values["size"] for values in parties.ask(self.count).values()}
        if len(sizes) != 1 or 0 in sizes:
            raise DataError(
                "without an alignment all parties need the same rows in the same order, and at least one; their "
                "numbers of records differ or are zero. Declare [identifier] in the schema to align them",
                key="identifier",
            )
        return int(sizes.pop())

    # At a site.

    @step(gives=("size",))
    def count(self, site: Site) -> dict[str, Any]:
        if len(site.records) > self.max_rows:
            raise DataError(
                f"{site.party}: the products have room for {self.max_rows} rows, found {len(site.records)}; raise "
                f"{self.name}.max_rows",
                key=f"{self.name}.max_rows",
            )
        return {"size": len(site.records)}

    # What the plan says.

    def warnings(self, consortium: Consortium) -> tuple[str, ...]:
        """What an alignment tells outside the guarantee."""
        if self.aligned is None:
            return ()
        sizes = (
            "alignment: how many people each party has and how many any of them share leave exactly, and each party "
            "learns which of its own people all share; the guarantee holds identifiers fixed: a neighbour has other "
            "columns, not another identifier, so whether somebody takes part is not hidden"
        )
        if self.alignment == "keyed":
            tried = (
                "alignment: a coordinator together with one party has the key of the pseudonyms, and can try every "
                'identifier that there may be (a dictionary); "ecdh" holds against that'
            )
        else:
            tried = (
                "alignment: a party that takes part learns for every identifier that it brings whether all others have "
                "it too, made-up ones included; it can try a dictionary as long as its own list"
            )
        return sizes, tried
