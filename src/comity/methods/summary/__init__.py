"""Summaries under covariate shift (Sarpatwar et al. 2019): records of many owners, chosen to match a consumer's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazy_exports import export_lazily

if TYPE_CHECKING:
    from comity.methods.summary.assessment import Measured as Measured
    from comity.methods.summary.assessment import compare_choices as compare_choices
    from comity.methods.summary.assessment import measure_choice as measure_choice
    from comity.methods.summary.auction.method import AuctionSummary as AuctionSummary
    from comity.methods.summary.features import FourierFeatures as FourierFeatures
    from comity.methods.summary.features import gamma_of_records as gamma_of_records
    from comity.methods.summary.herding import herd_features as herd_features
    from comity.methods.summary.herding import mmd2 as mmd2
    from comity.methods.summary.method import OneShotSummary as OneShotSummary
    from comity.methods.summary.method import Summary as Summary
    from comity.methods.summary.published.method import PublishedSummary as PublishedSummary

__all__ = [
    "AuctionSummary",
    "FourierFeatures",
    "Measured",
    "OneShotSummary",
    "PublishedSummary",
    "Summary",
    "compare_choices",
    "gamma_of_records",
    "herd_features",
    "measure_choice",
    "mmd2",
]

_HOMES = {
    "AuctionSummary": "comity.methods.summary.auction.method",
    "FourierFeatures": "comity.methods.summary.features",
    "Measured": "comity.methods.summary.assessment",
    "OneShotSummary": "comity.methods.summary.method",
    "PublishedSummary": "comity.methods.summary.published.method",
    "Summary": "comity.methods.summary.method",
    "compare_choices": "comity.methods.summary.assessment",
    "gamma_of_records": "comity.methods.summary.features",
    "herd_features": "comity.methods.summary.herding",
    "measure_choice": "comity.methods.summary.assessment",
    "mmd2": "comity.methods.summary.herding",
}
__getattr__, __dir__ = export_lazily(globals(), _HOMES)
