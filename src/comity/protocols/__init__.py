"""The methods, one folder each, by the name that a study gives."""

from __future__ import annotations

from comity.protocols.parameters import Parameters, Setting
from comity.protocols.softlabel.parameters import SoftLabelParameters

PROTOCOLS: dict[str, type[Parameters]] = {"softlabel": SoftLabelParameters}

__all__ = ["PROTOCOLS", "Parameters", "Setting"]
