"""How a site's process is joined to an engine: the engine's own end calls the desk, and knows nothing else of the site.

An engine registers the scheme of its addresses in `ENDPOINTS`. The local channel needs none: it calls a desk as it
calls a host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from comity.errors import BadInput, StudyError
from comity.files import locked
from comity.site.desk import Desk
from comity.site.site_file import SiteFile


class Endpoint(Protocol):
    """A site's end of a channel (`comity.federation.messages.channel`)."""

    def serve(self, desk: Desk) -> None:
        """Bring asks to `desk.answered` and packed studies to `desk.received` until the process is told to stop. Asks
        may come twice and in any order, from several threads; what is being answered then is finished."""


@contextmanager
def alone(site: SiteFile, *, patience: float = 5.0) -> Iterator[None]:
    """Be the only process that answers for a ledger; refused while another one does. Steps of one run take turns within
    a process; between two processes they would not. The system releases the lock however a process ends."""
    path = site.ledger.with_name(f"{site.ledger.name}.serving")

    def blocked() -> BadInput:
        return BadInput(f"{path}: another process serves with this ledger; end it first", code="serving", key="ledger")

    with locked(path, seconds=patience, blocked=blocked):
        yield


def _over_nats(site: SiteFile) -> Endpoint:
    try:
        from comity.relay.endpoint import NatsEndpoint
    except ModuleNotFoundError as error:
        raise StudyError(
            f"{site.where}: relay.address needs the extra deploy ({error.name} is missing); "
            "run: pip install 'comity[deploy]'",
            key="relay.address",
        ) from error
    return NatsEndpoint(site)


ENDPOINTS: dict[str, Callable[[SiteFile], Endpoint]] = {"tls": _over_nats, "wss": _over_nats}
"""Engines by the scheme of their addresses, as in tls://relay.example.org:4222 or wss://relay.example.org:443."""


def endpoint_of(site: SiteFile) -> Endpoint:
    """The end of the channel that the site file names."""
    if site.relay is None:
        raise StudyError(
            f'{site.where}: relay.address is missing; add [relay] with address = "..." as your consortium gave it',
            key="relay.address",
        )
    scheme, separator, _ = site.relay.address.partition("://")
    if not separator or scheme not in ENDPOINTS:
        known = ", ".join(f"{name}://" for name in ENDPOINTS) or "none"
        raise StudyError(
            f"{site.where}: relay.address = {site.relay.address!r}: this installation has no engine for it (known: "
            f"{known}); correct the address, or install the engine",
            key="relay.address",
        )
    return ENDPOINTS[scheme](site)
