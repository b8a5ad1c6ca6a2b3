"""The steps that every run has: reserve before anything else, close at the end."""

from __future__ import annotations

from typing import Any

from comity.federation.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declaration import Declaration, Release
from comity.federation.forms import Blob, Fields, Text
from comity.federation.protection import Public
from comity.federation.protocol import Protocol, step
from comity.federation.site import Site

_HEAD = Fields({"head": Text(64), "signature": Blob(64)})


class Life(Protocol):
    """Adversary: any coordinator. It learns that a party reserved or refused, and the head of its ledger."""

    def declare(self, who: Consortium) -> Declaration:
        return Declaration(
            (
                Release(
                    name="seen",
                    source=COORDINATOR,
                    to=EVERY_PARTY,
                    protection=Public("the last ledger head that the coordinator saw of this party"),
                    form=_HEAD,
                ),
                Release(
                    name="head",
                    source=EVERY_PARTY,
                    to=COORDINATOR,
                    protection=Public("a hash that lets others notice a ledger that was rolled back"),
                    form=_HEAD,
                ),
            ),
            adversary="any coordinator",
        )

    @step()
    def begin(self, site: Site, seen: dict[str, Any]) -> dict[str, Any]:
        # The policy first: a stranger to it may not make the site write anything.
        site.reserve()
        return {"head": site.ledger_head(seen)}

    @step()
    def end(self, site: Site) -> None:
        site.close()
