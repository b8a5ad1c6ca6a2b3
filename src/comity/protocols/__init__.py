"""The methods, one folder each, by the name that a study gives."""

from __future__ import annotations

from comity.protocols.averaging.parameters import AveragingParameters
from comity.protocols.parameters import Parameters, Setting
from comity.protocols.softlabel.parameters import SoftLabelParameters
from comity.protocols.vertical.parameters import VerticalParameters

PROTOCOLS: dict[str, type[Parameters]] = {
    "averaging": AveragingParameters,
    "softlabel": SoftLabelParameters,
    "vertical": VerticalParameters,
}

__all__ = ["PROTOCOLS", "Parameters", "Setting"]
