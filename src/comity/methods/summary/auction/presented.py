"""What an auction presents: bought records, with the value of winning bids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from comity.federation.declare.consortium import Consortium
from comity.methods.summary.artefact import BoughtRecords, Setting
from comity.methods.summary.bought import Bought
from comity.methods.summary.sizes import OWNER, consumer_of

if TYPE_CHECKING:
    from comity.methods.summary.auction.market import Market


def presented(protocol: Market, released: Mapping[str, Any], who: Consortium) -> Any:
    """KeyError where a receiver was not sent it."""
    owners = tuple(who.among(OWNER))
    places = {party: place for place, party in enumerate(who.parties)}
    setting = Setting(protocol.gamma, tuple(places[owner] for owner in owners), places[consumer_of(who)])
    schema = None if protocol.encoding is None else replace(protocol.encoding.schema, identifier=None)
    summary, attribution = released["summary"], released["attribution"]
    bought = Bought.of(
        owners,
        attribution,
        payment=protocol.payment,
        asked=protocol.records,
        seen=int(attribution["seen"][0]),
        basis="bids",
    )
    return BoughtRecords(
        summary["rows"], summary.get("labels"), summary["owners"], bought, schema, protocol.image, setting
    )
