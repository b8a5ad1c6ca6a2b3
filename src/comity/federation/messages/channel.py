"""How bytes reach the sites. The engine of a deployment implements `Channel` and nothing else.

A channel carries one ask to some parties and says what it hears, through the `Asking` that it returns. It knows no
steps and relies on nothing: it may deliver a message twice, in any order or not at all, because a site answers an ask
once and remembers it, and whoever asked verifies what arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from comity.federation.messages.asking import Asking
from comity.federation.messages.codec import LIMIT

Message = Callable[[], bytes]
"""Makes a message: the same bytes each time, so that a channel may let go of them and make them again."""

MOST = LIMIT
"""Bytes of a message or a reply that a channel carries, unless it is told to carry less."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long an ask waits, in seconds; None is for ever.

    `deadline` is for all of it. `silent` is how long a party may show no sign of life: one that computes shows them, so
    that a long step is told from a party that is gone. `grace` is what the others get once the outcome is decided:
    enough have answered, or too few can.
    """

    deadline: float | None = None
    silent: float | None = None
    grace: float | None = None

    def __post_init__(self) -> None:
        for name in ("deadline", "silent", "grace"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"patience.{name} is a number of seconds or None, found {value!r}")


FOR_EVER = Patience()


class Channel(Protocol):
    def ask(self, messages: Mapping[str, Message], *, patience: Patience = FOR_EVER) -> Asking:
        """Begin to deliver a message to each party, and return at once what will say how that goes.

        Messages are made when they are sent and held no longer than needed. A party that can't be reached is lost in
        `Asking`, never an exception. Asking again with the same messages is allowed at any time. Several asks may be
        open at once, from several threads. When the `Asking` is closed, nothing more is sent for it.
        """
