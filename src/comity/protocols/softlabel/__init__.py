"""Learning from the votes of local classifiers (Hamm, Cao, Belkin 2016)."""

from comity.protocols.softlabel.protocol import SoftLabel
from comity.protocols.softlabel.published.protocol import PublishedSoftLabel

__all__ = ["PublishedSoftLabel", "SoftLabel"]
