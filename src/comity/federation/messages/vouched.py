"""The coordinator's signature on each value that a run released, which outlives the run.

Promise    Whoever has the study, with the coordinator's pinned key, can tell years later that a value is what this run
           released under this name: also somebody to whom a receiver handed it on.
Against    Whoever holds the files meanwhile. Not against the coordinator, who signs.

A signature is over study, run, release, the ask that brought the value, and the value's digest. A party gets those of
values that were released to it and no others: a digest of a value is something about it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from comity.crypto.sealing import Identity, PublicIdentity
from comity.federation.declare.consortium import Consortium
from comity.federation.messages.codec import encode

SIGNATURE_BYTES = 64

Signatures = Mapping[str, Mapping[str, bytes]]
"""By release, then by the path of the ask that brought the value."""


@dataclass(frozen=True)
class SignaturesForm:
    """What the end of a run brings of them."""

    def fits(self, value: Any, dims: Mapping[str, int], consortium: Consortium) -> bool:
        return type(value) is dict and all(
            type(paths) is dict and all(type(one) is bytes and len(one) == SIGNATURE_BYTES for one in paths.values())
            for paths in value.values()
        )


def vouch(keys: Identity, study: str, run: str, name: str, path: str, value: bytes) -> bytes:
    """The coordinator's signature on an encoded value."""
    return keys.sign(_said(study, run, name, path, value))


def check_vouched(
    coordinator: PublicIdentity, signature: bytes, study: str, run: str, name: str, path: str, value: bytes
) -> None:
    """Raises Malformed where the coordinator has not signed this value."""
    coordinator.verify(signature, _said(study, run, name, path, value))


def _said(study: str, run: str, name: str, path: str, value: bytes) -> bytes:
    return encode(["released", study, run, name, path, hashlib.sha256(value).digest()])
