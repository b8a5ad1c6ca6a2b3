"""How many records a study declares for each party, and a warning where a party has a different number.

Weights, penalties and layouts come from the declared figures alone. A site that reported a different count would
release it. The warning goes to its owner alone, because a wrong figure costs accuracy."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from comity.errors import StudyError
from comity.federation.declare.consortium import Consortium
from comity.federation.owner.site import Site

log = logging.getLogger("comity.site")

Sizes = Mapping[str, int] | int
"""The declared records of each party, or one number for each."""
FAR = 2
"""A count is far from the declared one beyond this factor, either way. Not tuned on data."""


def check_sizes(sizes: Sizes, consortium: Consortium, key: str) -> None:
    """Refuse sizes that are not whole numbers, lack a party of the study or name an unknown one."""
    figures: Iterable[tuple[str, Any]] = sizes.items() if isinstance(sizes, Mapping) else [("", sizes)]
    for party, size in figures:
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= 1 << 40:
            name = f"{key}.{party}".rstrip(".")
            raise StudyError(f"{name} must be a whole number of at least 1, found {size!r}", key=name)
    if not isinstance(sizes, Mapping):
        return
    absent = [party for party in consortium.parties if party not in sizes]
    unknown = [party for party in sizes if not consortium.knows(party)]
    if absent or unknown:
        wrong = f"no size for {absent[0]!r}" if absent else f"a size for {unknown[0]!r}, which is no party of the study"
        raise StudyError(f"{key} has {wrong}; give one for each party of the study, or one number for all", key=key)


def size_of(sizes: Sizes, party: str) -> int:
    return sizes if isinstance(sizes, int) else sizes[party]


def largest_size(sizes: Sizes) -> int:
    return sizes if isinstance(sizes, int) else max(sizes.values())


def sum_sizes(sizes: Sizes, parties: Collection[str]) -> int:
    return sizes * len(parties) if isinstance(sizes, int) else sum(sizes[party] for party in parties)


def warn_owner(site: Site, declared: int | None, key: str, *, lower_bound: bool = False) -> None:
    """Log at the site where its count is far from the declared one, or below a declared lower bound.

    Stacks of simulated parties have no owners to warn.
    """
    if declared is None or not isinstance(site, Site):
        return
    found, least = len(site.records), declared if lower_bound else declared / FAR
    if not least <= found <= FAR * declared:
        log.warning(
            "%s: the study declares %d records here (%s), and there are %d. Nothing of this is sent, and the guarantee "
            "holds; but the model will be less exact than it could be. Have the study corrected, if the number may be "
            "known",
            site.party,
            declared,
            key,
            found,
        )
