"""On which terms parties that hold different columns run a study, and whom it holds against."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Literal

from comity.errors import StudyError
from comity.federation.declare.consortium import Consortium
from comity.privacy.unit import Unit

Way = Literal["rlwe", "dealer"]
"""How products across parties are computed."""

NOT_AGAINST = "not a party with a program of its own, which can read rows of the others"
"""Noise covers rows within their bound. Nobody sees whether a party's rows in a product are: one that multiplies a row
reads what its peers hold of the same person (docs/security.md)."""

CHARGED = "one person's columns at all parties together; every ledger is charged for this one loss"


class MatchesAndMultiplies(typing.Protocol):
    """How a method multiplies columns of different parties, and how it matches their rows."""

    @property
    def products(self) -> str: ...
    @property
    def alignment(self) -> str: ...


def protects(alignment: str, unit: Unit) -> bool:
    """With an alignment a person has one row; without one nobody checks that it has."""
    return unit is Unit.RECORD or (unit is Unit.PERSON and alignment != "none")


def check_parties(name: str, columns: Mapping[str, tuple[str, ...]], consortium: Consortium) -> None:
    """Every party holds columns that the others don't have: none can be missing, and there are two at least."""
    if consortium.dropouts:
        raise StudyError(
            f"{name} needs every party to the end where each holds its own columns, found privacy.dropouts = "
            f"{consortium.dropouts}; set it to 0: a run that lost a party waits for it",
            key="privacy.dropouts",
        )
    if tuple(consortium.parties) != tuple(columns):
        raise StudyError(
            f"the columns are those of {', '.join(columns)}, the parties are {', '.join(consortium.parties)}; "
            "give every party its columns, in the same order",
            key="parties",
        )
    if consortium.size < 2:
        raise StudyError(
            f"{name} multiplies columns of different parties, found one party; add another, or work at home",
            key="parties",
        )


def adversary(method: MatchesAndMultiplies, consortium: Consortium, released: str | None, also: str = "") -> str:
    """Whom the noise, the products and the alignment hold against, all at once, and whom they do not. `released` names
    what a coordinator keeps to itself where no party may read it; None where every party reads it. `also` names who
    else is held against.

    A dealer must be honest for more than secrecy. Dealt words enter what is opened, and no party can tell what they add
    up to: a dealer that deals false ones moves the opened sums as far as it likes, by a record too.
    """
    return f"{_held_against(method, consortium, released, also)}; {NOT_AGAINST}"


def _held_against(method: MatchesAndMultiplies, consortium: Consortium, released: str | None, also: str) -> str:
    if method.products == "dealer" or method.alignment == "keyed":
        # Together with a party, a dealer could read its peers' columns, and a matcher try out ids.
        does = " and ".join(
            word
            for word, holds in (("deals", method.products == "dealer"), ("matches ids", method.alignment == "keyed"))
            if holds
        )
        alone = f"an honest-but-curious coordinator that works with no party (it {does})"
        alone += (
            f", and up to {consortium.colluders} of {consortium.size} parties together" if consortium.colluders else ""
        )
        assumed = "; the sensitivity assumes that the coordinator deals correctly"
        return alone + also + (assumed if method.products == "dealer" else "")
    if not consortium.colluders:
        kept = f", who keeps {released} to itself" if released else ""
        return f"an honest-but-curious coordinator alone{kept}{also}"
    return f"an honest-but-curious coordinator with up to {consortium.colluders} of {consortium.size} parties{also}"
