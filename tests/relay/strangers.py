"""Connections of strangers to the relay, held open until the relay closes them."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from comity.relay.address import RelayAddress

GARBAGE = (
    b"\0" * 5000,
    b"CONNECT " + b"[" * 900 + b"\r\n",
    b"CONNECT {" + b'"a":' * 200 + b"\r\n",
    b'CONNECT {"verbose":' + b"1" * 4000,
    b"PUB comity.ask.north 99999999999999999999\r\n",
    b"PUB comity.ask.north 5\r\nhello\r\nSUB > 1\r\n",
    b"HPUB x 10 5\r\nNATS/1.0\r\n\r\n",
    b"SUB > 1\r\nPING\r\n",
    b"INFO {}\r\n",
    b"RS+ north > 1\r\nLS+ > 1\r\nA+ north\r\n",
    b"\xff\xfe" * 700,
)
"""What strangers send after TLS: long lines, deep and broken JSON, commands before CONNECT, commands of servers."""


class Strangers:
    """Dial the relay of a member. `nameless` ones finish TLS and never say CONNECT; `babbling` ones send garbage."""

    def __init__(self, relay: RelayAddress) -> None:
        place = urlsplit(relay.address)
        assert place.hostname == "127.0.0.1" and place.port is not None
        self._relay, self._place = relay, (place.hostname, place.port)
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._sockets:
            one.close()

    def come(self, *, silent: int = 0, halfway: int = 0, nameless: int = 0, babbling: int = 0) -> None:
        for _ in range(silent):
            self._dialled()
        for _ in range(halfway):
            self._dialled().sendall(self._hello())
        for _ in range(nameless):
            self._greeted()
        for number in range(babbling):
            with suppress(OSError):
                self._greeted().sendall(GARBAGE[number % len(GARBAGE)])

    def are_cut_within(self, seconds: float) -> bool:
        """Whether the relay ends each connection by then."""
        end = time.monotonic() + seconds
        return all(_ends(one, end) for one in self._sockets)

    def _dialled(self) -> socket.socket:
        self._sockets.append(socket.create_connection(self._place, 5))
        return self._sockets[-1]

    def _greeted(self) -> socket.socket:
        plain = self._dialled()
        self._sockets[-1] = self._relay.tls_context().wrap_socket(plain, server_hostname=self._place[0])
        return self._sockets[-1]

    def _hello(self) -> bytes:
        """The first message of a handshake that is not continued."""
        said = ssl.MemoryBIO()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.wrap_bio(ssl.MemoryBIO(), said, server_hostname=self._place[0]).do_handshake()
        except ssl.SSLWantReadError:
            return said.read()
        raise AssertionError("a handshake ended without the other side")


def _ends(one: socket.socket, end: float) -> bool:
    while (left := end - time.monotonic()) > 0:
        one.settimeout(left)
        try:
            if not one.recv(1 << 16):
                return True
        except TimeoutError:
            return False
        except OSError:
            return True
    return False
