"""Runs of protocols that no study file names, as results."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from comity.federation.protocol import Protocol
from comity.study.results.result import Result
from comity.study.simulation.simulate import RunOptions, Terms, simulate


def simulate_with(protocol: Protocol, **settings: Any) -> Result:
    """Simulate with settings by name, for builders whose tests change one of them: terms, options or the rest."""
    terms, options = (
        {field.name: settings.pop(field.name) for field in fields(kind) if field.name in settings}
        for kind in (Terms, RunOptions)
    )
    return simulate(protocol, terms=Terms(**terms), options=RunOptions(**options), **settings)
