"""The public sizes of the parties: what a study says about how many records each has, never what a site counts.

Weights, penalties and steps come from these figures alone. What a site has in fact may differ: with fewer records its
own penalty grows in proportion, with more it is taken per record, and either way one record moves what it sends by no
more than declared (proof.md, 4). A wrong figure costs accuracy, not privacy, and no site has to say that it is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from comity.errors import StudyError
from comity.federation.declare.consortium import Consortium
from comity.privacy.unit import Neighbours

Sizes = Mapping[str, int] | int | None

# Sums have room for parties that hold so many times the records that the study says; beyond, they are shrunk. Not tuned
# on data: it decides how wide the integers are, and moves no noise.
HEADROOM = 4


def checked_sizes(sizes: Sizes, consortium: Consortium) -> None:
    """A size for every party, or one for all; never assumed."""
    if sizes is None:
        meant = (
            "number of records" if consortium.neighbours is Neighbours.REPLACE else "public lower bound on the records"
        )
        raise StudyError(
            f"averaging.sizes is missing: with neighbours = {consortium.neighbours} the study must state the {meant} "
            "of each party; add [averaging.sizes] with a line NAME = COUNT for each, or one count for all",
            key="averaging.sizes",
        )
    figures: Iterable[tuple[str, Any]] = [("", sizes)] if not isinstance(sizes, Mapping) else sizes.items()
    for party, size in figures:
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= 1 << 40:
            key = f"averaging.sizes.{party}".rstrip(".")
            raise StudyError(f"{key} must be a whole number of at least 1, found {size!r}", key=key)
    if not isinstance(sizes, Mapping):
        return
    absent = [party for party in consortium.parties if party not in sizes]
    unknown = [party for party in sizes if not consortium.knows(party)]
    if absent or unknown:
        wrong = f"no size for {absent[0]!r}" if absent else f"a size for {unknown[0]!r}, which is no party of the study"
        raise StudyError(
            f"averaging.sizes has {wrong}; give one size for each party of the study, or one number for all",
            key="averaging.sizes",
        )


def size_of(sizes: Sizes, party: str) -> int:
    assert sizes is not None
    return sizes if isinstance(sizes, int) else sizes[party]


def largest(sizes: Sizes) -> int:
    assert sizes is not None
    return sizes if isinstance(sizes, int) else max(sizes.values())


def together(sizes: Sizes, consortium: Consortium, parties: Iterable[str] | None = None) -> int:
    """The records of some parties, by default of all."""
    if isinstance(sizes, int):
        return sizes * (consortium.size if parties is None else len(list(parties)))
    assert sizes is not None
    return sum(sizes[party] for party in (consortium.parties if parties is None else parties))
