"""Learning from the votes of local classifiers (Hamm, Cao, Belkin 2016)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazily import lazily

if TYPE_CHECKING:
    from comity.methods.softlabel.protocol import SoftLabel as SoftLabel
    from comity.methods.softlabel.published.protocol import PublishedSoftLabel as PublishedSoftLabel

__all__ = ["PublishedSoftLabel", "SoftLabel"]

_HOMES = {
    "PublishedSoftLabel": "comity.methods.softlabel.published.protocol",
    "SoftLabel": "comity.methods.softlabel.protocol",
}
__getattr__, __dir__ = lazily(globals(), _HOMES)
