"""Messages to sites, made one after the other on a thread of their own while few are held."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from comity.errors import BadInput
from comity.relay.call import Call
from comity.relay.frames import SHORT, id_of

_MADE, _MADE_BYTES = 4, 64 << 20


class Making:
    """`made(call, id, message)` is called on the thread that makes them, with each message that may go."""

    def __init__(self, made: Callable[[Call, bytes, bytes], None]) -> None:
        self._made = made
        self._wanted: SimpleQueue[Call | None] = SimpleQueue()
        # Guards all that follows: several threads want messages and let go of them.
        self._room = threading.Condition()
        self._held: dict[Call, int] = {}
        self._waiting: set[Call] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="messages to sites", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self._room:
            self._closing = True
            self._room.notify_all()
        self._wanted.put(None)
        self._thread.join()

    def want(self, calls: Sequence[Call]) -> None:
        with self._room:
            self._waiting.update(calls)
        for call in calls:
            self._wanted.put(call)

    @property
    def waiting(self) -> list[Call]:
        """Those whose messages are not made yet, for which no party can be blamed."""
        with self._room:
            return list(self._waiting)

    def let_go(self, call: Call) -> None:
        """Whoever wants this message again has it made again."""
        call.message, call.idle = None, 0
        with self._room:
            if self._held.pop(call, None) is not None:
                self._room.notify_all()

    def _run(self) -> None:
        while (call := self._wanted.get()) is not None:
            with self._room:
                self._room.wait_for(lambda: self._closing or self._has_room())
            if call.is_waited_for and not self._closing:
                self._make(call)
            with self._room:
                self._waiting.discard(call)

    def _has_room(self) -> bool:
        return len(self._held) < _MADE and sum(self._held.values()) < _MADE_BYTES

    def _make(self, call: Call) -> None:
        try:
            raw = call.make()
        except BaseException as error:
            call.asking.failed(error)
            return
        if not call.asking.fits(call.party, len(raw)):
            return
        name = id_of(raw)
        if call.id not in (b"", name):
            call.asking.failed(BadInput(f"the message to {call.party} is another when it is made again", code="form"))
            return
        if len(raw) > SHORT:
            with self._room:
                self._held[call] = len(raw)
        self._made(call, name, raw)
