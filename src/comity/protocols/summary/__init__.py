"""Summaries under covariate shift (Sarpatwar et al. 2019): records of many owners, chosen to match a consumer's."""

from comity.protocols.summary.auction.protocol import AuctionSummary
from comity.protocols.summary.protocol import OneShotSummary
from comity.protocols.summary.published.protocol import PublishedSummary

__all__ = ["AuctionSummary", "OneShotSummary", "PublishedSummary"]
