"""Runs of protocols that no study file names, as results."""

from __future__ import annotations

from typing import Any

from comity.federation.protocol import Protocol
from comity.study.results.result import Result
from comity.study.simulation.simulate import simulate


def simulated_result(protocol: Protocol, **options: Any) -> Result:
    return simulate(protocol, **options)
