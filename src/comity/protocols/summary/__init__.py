"""Summaries under covariate shift (Sarpatwar et al. 2019): records of many owners, chosen to match a consumer's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazily import lazily

if TYPE_CHECKING:
    from comity.protocols.summary.auction.protocol import AuctionSummary as AuctionSummary
    from comity.protocols.summary.protocol import OneShotSummary as OneShotSummary
    from comity.protocols.summary.published.protocol import PublishedSummary as PublishedSummary

__all__ = ["AuctionSummary", "OneShotSummary", "PublishedSummary"]

_HOMES = {
    "AuctionSummary": "comity.protocols.summary.auction.protocol",
    "OneShotSummary": "comity.protocols.summary.protocol",
    "PublishedSummary": "comity.protocols.summary.published.protocol",
}
__getattr__, __dir__ = lazily(globals(), _HOMES)
