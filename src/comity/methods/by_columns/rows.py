"""Which rows the parties multiply: those that they hold in one order already, or those that an alignment finds.

`table` is the method's table in a study: errors name the keys in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from annotated_types import Interval

from comity.data import Schema
from comity.errors import DataError, StudyError
from comity.federation.constraints import Key
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.declaration import Release
from comity.federation.declare.protection import Public
from comity.federation.declare.release import Count
from comity.federation.owner.site import Site
from comity.methods.by_columns.alignment import Alignment

Way = Literal["none", "keyed", "ecdh"]
Most = Annotated[int, Interval(ge=2, le=1 << 24), Key("max_rows")]
"""Rows that the products are laid out for."""


def check(table: str, alignment: str, schema: Schema) -> None:
    if alignment != "none" and schema.identifier is None:
        raise StudyError(
            f"{table}.alignment = {alignment!r} needs an identifier; declare [identifier] in the schema",
            key=f"{table}.alignment",
        )


def declared(aligned: Alignment | None, consortium: Consortium, most: int) -> tuple[Release, ...]:
    """What leaves so that the rows can be agreed on."""
    if aligned is not None:
        return aligned.declare(consortium).releases
    return (
        Release(
            name="size",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Public("how many records a party has; replacing one does not change it"),
            form=Count(most),
        ),
    )


def counted(table: str, site: Site, most: int) -> dict[str, Any]:
    if len(site.records) > most:
        raise DataError(
            f"{site.party}: the products are laid out for {most} rows, found {len(site.records)}; raise "
            f"{table}.max_rows",
            key=f"{table}.max_rows",
        )
    return {"size": len(site.records)}


def agreed(table: str, parties: Parties, aligned: Alignment | None, count: Callable[..., Any], most: int) -> int:
    """How many rows all parties share, in one order from here on; `count` is the step that tells a party's own."""
    rows = aligned.coordinate_alignment(parties) if aligned is not None else _equal(parties, count)
    if rows > most:
        raise StudyError(
            f"products are laid out for {most} rows, the parties share {rows}; raise {table}.max_rows",
            key=f"{table}.max_rows",
        )
    return rows


def _equal(parties: Parties, count: Callable[..., Any]) -> int:
    sizes = {values["size"] for values in parties.ask(count).values()}
    if len(sizes) != 1 or 0 in sizes:
        raise DataError(
            "without an alignment all parties need the same rows in the same order, and at least one; their "
            "numbers of records differ or are zero. Declare [identifier] in the schema to align them",
            key="identifier",
        )
    return int(sizes.pop())


def warned(aligned: Alignment | None) -> tuple[str, ...]:
    """What an alignment tells outside the guarantee."""
    if aligned is None:
        return ()
    sizes = (
        "alignment: how many people each party has and how many any of them share leave exactly, and each party learns "
        "which of its own people all share; the guarantee holds identifiers fixed: a neighbour has other columns, not "
        "another identifier, so whether somebody takes part is not hidden"
    )
    if aligned.method == "keyed":
        tried = (
            "alignment: a coordinator together with one party has the key of the pseudonyms, and can try every "
            'identifier that there may be (a dictionary); "ecdh" holds against that'
        )
    else:
        tried = (
            "alignment: a party that takes part learns for every identifier that it brings whether all others have it "
            "too, made-up ones included; it can try a dictionary as long as its own list"
        )
    return sizes, tried
