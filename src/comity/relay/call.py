"""One ask of one party over the relay, as its coordinator follows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from io import BytesIO

from comity.federation.messages.asking import Asking
from comity.federation.messages.channel import Message
from comity.relay.frames import Kind, Pulling


@dataclass(eq=False)
class Call:
    """Until there is an outcome or nobody waits for it."""

    asking: Asking
    party: str
    make: Message
    kind: Kind = Kind.ASK
    id: bytes = b""
    size: int = 0
    message: bytes | None = None
    idle: int = 0
    making: bool = True
    pulls: set[int] = field(default_factory=set)
    absent: float | None = None
    reply: Pulling | None = None
    arrived: BytesIO = field(default_factory=BytesIO)
    offered: tuple[bytes, int] | None = None
    tries: int = 0

    @property
    def is_waited_for(self) -> bool:
        return self.asking.waits_for(self.party)
