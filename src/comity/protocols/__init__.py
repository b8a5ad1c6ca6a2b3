"""The methods, one folder each, by the name that a study gives. A study imports its own method and no other."""

from __future__ import annotations

from importlib import import_module

from comity.protocols.parameters import Parameters, Setting

PROTOCOLS: dict[str, tuple[str, str]] = {
    "averaging": ("comity.protocols.averaging.parameters", "AveragingParameters"),
    "softlabel": ("comity.protocols.softlabel.parameters", "SoftLabelParameters"),
    "summary": ("comity.protocols.summary.parameters", "SummaryParameters"),
    "synthetic": ("comity.protocols.synthetic.parameters", "SyntheticParameters"),
    "vertical": ("comity.protocols.vertical.parameters", "VerticalParameters"),
}
"""Where the table of each method is described: a module and a name in it."""


def parameters_of(name: str) -> type[Parameters]:
    module, leaf = PROTOCOLS[name]
    found: type[Parameters] = getattr(import_module(module), leaf)
    return found


__all__ = ["PROTOCOLS", "Parameters", "Setting", "parameters_of"]
