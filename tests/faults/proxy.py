"""A stretch of network between a member and the relay, which can be cut and mended."""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class Stretch:
    """Carries bytes between a client of `port` and the relay. `hold` lets nothing through and reports nothing, like a
    router that drops packets; `cut` breaks connections and refuses new ones until `mend`."""

    def __init__(self, port: int) -> None:
        self._relay = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._open = threading.Event()
        self._open.set()
        self._broken = False
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self) -> None:
        self._open.clear()

    def cut(self) -> None:
        self._broken = True
        self._break()

    def mend(self) -> None:
        self._broken = False
        self._open.set()

    def close(self) -> None:
        self._broken = True
        self._open.set()
        self._listening.close()
        self._break()

    def _break(self) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._ends.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                if self._broken:
                    near.close()
                    time.sleep(0.01)
                    continue
                far = socket.create_connection(("127.0.0.1", self._relay))
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                self._open.wait()
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
