"""The number of a run's messages, by which a coordinator and a site of different releases notice each other.

A study's hash covers what is computed, not how it is said: secure sums, letters or lists may be written differently in
another release while the hash stays. The packed study carries the number, so a site refuses to take in the study of
another release. A site or a coordinator may also be upgraded between the approval and the run. So the first ask of a
run carries it again; that ask is a dry run, and no ledger has reserved anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from comity.errors import Refused
from comity.federation.declare.consortium import Consortium

WIRE_FORMAT = 3
"""Rises with every change of a run's messages (docs/releasing.md)."""
OTHER_RELEASE = "release"
"""The code with which a site refuses what another release says."""


SAME_RELEASE = "the coordinator and all sites need the same release"
_MAX_NUMBER = 1 << 31


@dataclass(frozen=True)
class WireFormat:
    """The number, as a run's first ask carries it."""

    def fits(self, value: Any, dims: Mapping[str, int], consortium: Consortium) -> bool:
        return type(value) is int and 0 <= value < _MAX_NUMBER


def require_wire_format(number: int, of: str) -> None:
    """Refuse messages of another release."""
    if number != WIRE_FORMAT:
        raise Refused(
            f"refused: {of} writes its messages in format {number}, and this release of Comity writes format "
            f"{WIRE_FORMAT}: {SAME_RELEASE}",
            code=OTHER_RELEASE,
            key="format",
        )
