"""Summaries under covariate shift (Sarpatwar et al. 2019): records of many owners, chosen to match a consumer's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazy_exports import export_lazily

if TYPE_CHECKING:
    from comity.methods.summary.auction.method import AuctionSummary as AuctionSummary
    from comity.methods.summary.method import OneShotSummary as OneShotSummary
    from comity.methods.summary.method import Summary as Summary
    from comity.methods.summary.published.method import PublishedSummary as PublishedSummary

__all__ = ["AuctionSummary", "OneShotSummary", "PublishedSummary", "Summary"]

_HOMES = {
    "Summary": "comity.methods.summary.method",
    "AuctionSummary": "comity.methods.summary.auction.method",
    "OneShotSummary": "comity.methods.summary.method",
    "PublishedSummary": "comity.methods.summary.published.method",
}
__getattr__, __dir__ = export_lazily(globals(), _HOMES)
