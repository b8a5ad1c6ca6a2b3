"""Summaries under covariate shift (Sarpatwar et al. 2019): records of many owners, chosen to match a consumer's."""

from comity.protocols.summary.protocol import OneShotSummary

__all__ = ["OneShotSummary"]
