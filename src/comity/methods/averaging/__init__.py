"""Averaged classifiers (Pathak, Rane, Raj 2010): the default by secure sums, and the published protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazy_exports import export_lazily

if TYPE_CHECKING:
    from comity.methods.averaging.method import Averaging as Averaging
    from comity.methods.averaging.method import AveragingProtocol as AveragingProtocol
    from comity.methods.averaging.published.method import PublishedAveraging as PublishedAveraging

__all__ = ["Averaging", "AveragingProtocol", "PublishedAveraging"]

_HOMES = {
    "Averaging": "comity.methods.averaging.method",
    "AveragingProtocol": "comity.methods.averaging.method",
    "PublishedAveraging": "comity.methods.averaging.published.method",
}
__getattr__, __dir__ = export_lazily(globals(), _HOMES)
