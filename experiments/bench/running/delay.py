"""A stretch of network that delays: bytes between clients of its port and a relay on this machine arrive so much later,
in either direction, as many as there are."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import replace
from queue import SimpleQueue

from comity.relay.address import RelayAddress


class Delay:
    """Listens on `port` of this machine until it is closed, and connects each client to the relay."""

    def __init__(self, relay: RelayAddress, seconds: float) -> None:
        self._relay, self._seconds = relay, seconds
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Delay:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def behind(self, relay: RelayAddress) -> RelayAddress:
        """The same relay with the same keys, at the far end of this stretch."""
        return replace(relay, address=f"tls://127.0.0.1:{self.port}")

    def _accept(self) -> None:
        port = int(self._relay.address.rpartition(":")[2])
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", port))
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    travelling: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
                    threading.Thread(target=self._read, args=(one, travelling), daemon=True).start()
                    threading.Thread(target=self._write, args=(other, travelling), daemon=True).start()

    def _read(self, end: socket.socket, travelling: SimpleQueue[tuple[float, bytes]]) -> None:
        data = b"-"
        while data:
            try:
                data = end.recv(1 << 18)
            except OSError:
                data = b""
            travelling.put((time.monotonic() + self._seconds, data))

    def _write(self, end: socket.socket, travelling: SimpleQueue[tuple[float, bytes]]) -> None:
        with contextlib.suppress(OSError):
            while (arrival := travelling.get())[1]:
                time.sleep(max(0.0, arrival[0] - time.monotonic()))
                end.sendall(arrival[1])
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
