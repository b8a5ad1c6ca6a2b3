"""Averaged classifiers (Pathak, Rane, Raj 2010): the default by secure sums, and the published protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazy_exports import export_lazily

if TYPE_CHECKING:
    from comity.methods.averaging.method import Averaging as Averaging
    from comity.methods.averaging.method import AveragingProtocol as AveragingProtocol
    from comity.methods.averaging.objectives import Kind as Kind
    from comity.methods.averaging.objectives import penalty_for as penalty_for
    from comity.methods.averaging.published.method import PublishedAveraging as PublishedAveraging

__all__ = [
    "Averaging",
    "AveragingProtocol",
    "Kind",
    "PublishedAveraging",
    "penalty_for",
]

_HOMES = {
    "Averaging": "comity.methods.averaging.method",
    "AveragingProtocol": "comity.methods.averaging.method",
    "Kind": "comity.methods.averaging.objectives",
    "PublishedAveraging": "comity.methods.averaging.published.method",
    "penalty_for": "comity.methods.averaging.objectives",
}
__getattr__, __dir__ = export_lazily(globals(), _HOMES)
