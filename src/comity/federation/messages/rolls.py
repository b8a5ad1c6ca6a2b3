"""Lists of parties, which are the same for all of them: encoded and hashed once for each list, not once for each party.

A large sum shows every party the list of its members and that of the survivors. What is remembered here is a pure
function of the names, by the names themselves: a list that differs in one of them, or in their order, is another one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

from comity.federation.messages.codec import Embedded, embedded

_MOST = 16


def roll(names: Sequence[str]) -> Embedded:
    """A list of parties as it is kept or sent."""
    return _encoded(tuple(names))[0]


def digest(names: Sequence[str]) -> bytes:
    """SHA-256 of the encoded list."""
    return _encoded(tuple(names))[1]


@lru_cache(maxsize=_MOST)
def _encoded(names: tuple[str, ...]) -> tuple[Embedded, bytes]:
    made = embedded(list(names), depth=1)
    return made, hashlib.sha256(made.message).digest()
