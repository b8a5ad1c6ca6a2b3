"""Summaries under covariate shift (Sarpatwar et al. 2019): records of many owners, chosen to match a consumer's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazily import lazily

if TYPE_CHECKING:
    from comity.methods.summary.auction.protocol import AuctionSummary as AuctionSummary
    from comity.methods.summary.protocol import OneShotSummary as OneShotSummary
    from comity.methods.summary.published.protocol import PublishedSummary as PublishedSummary

__all__ = ["AuctionSummary", "OneShotSummary", "PublishedSummary"]

_HOMES = {
    "AuctionSummary": "comity.methods.summary.auction.protocol",
    "OneShotSummary": "comity.methods.summary.protocol",
    "PublishedSummary": "comity.methods.summary.published.protocol",
}
__getattr__, __dir__ = lazily(globals(), _HOMES)
