"""Averaged classifiers (Pathak, Rane, Raj 2010): the default by secure sums, and the published protocol."""

from comity.protocols.averaging.protocol import Averaging
from comity.protocols.averaging.published.protocol import PublishedAverage

__all__ = ["Averaging", "PublishedAverage"]
