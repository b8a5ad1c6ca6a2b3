"""How many records a study declares of a party, beside how many it has: said to its owner, and to nobody else.

Weights, penalties and layouts come from the declared figure alone. A site that differs from it would release its own
count if it said so; but its owner may want to have the study corrected, because accuracy suffers.
"""

from __future__ import annotations

import logging

from comity.federation.owner.site import Site

log = logging.getLogger("comity.site")

FAR = 2
"""A count is far from the declared one beyond this factor, either way. Not tuned on data."""


def tell_owner(site: Site, declared: int | None, key: str, *, lower_bound: bool = False) -> None:
    """A line in the site's own log where its count is far from the declared one, or below a declared lower bound.

    Stacks of simulated parties have no owners to tell.
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
