"""Averaged classifiers (Pathak, Rane, Raj 2010): the default by secure sums, and the published protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazily import lazily

if TYPE_CHECKING:
    from comity.methods.averaging.protocol import Averaging as Averaging
    from comity.methods.averaging.published.protocol import PublishedAverage as PublishedAverage

__all__ = ["Averaging", "PublishedAverage"]

_HOMES = {
    "Averaging": "comity.methods.averaging.protocol",
    "PublishedAverage": "comity.methods.averaging.published.protocol",
}
__getattr__, __dir__ = lazily(globals(), _HOMES)
