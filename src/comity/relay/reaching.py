"""What answers at the relay's address, found out within seconds: the relay, a full one, somebody else, or nobody."""

from __future__ import annotations

import json
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from comity.relay.dialling import Relay
from comity.relay.server_version import parse_version

DIAL_SECONDS = 3.0
"""For each of: to connect, to shake hands, and to read the greeting."""
_FULL_SECONDS = 1.0
_FULL = b"maximum connections exceeded"
_DEFAULT_PORT = 4222
_GREETING_BYTES = 8192


@dataclass(frozen=True)
class Reached:
    """`detail` is what the system or TLS said; empty where the relay answers or is full. `version` is what a relay says
    of its server, and empty where it says nothing before more is asked, as at a websocket."""

    state: Literal["answers", "full", "foreign", "silent"]
    detail: str = ""
    version: str = ""

    def explain(self, address: str) -> str:
        """One sentence for whoever dials, with what to do."""
        match self.state:
            case "answers":
                return f"{address}: answers, with a certificate of your authority"
            case "full":
                return f"{address}: is full and takes no connection now; try again in a minute, or ask who runs it"
            case "foreign":
                return f"{address}: answers, but not as your relay ({self.detail}); ask who runs it"
            case "silent":
                return f"{address}: does not answer ({self.detail}); look at your firewall, or ask who runs it"


def dial(address: str, context: ssl.SSLContext, *, seconds: float = DIAL_SECONDS) -> Reached:
    """Connect and shake hands, and nothing else: whether the relay admits us is not asked."""
    place = urlsplit(address)
    host, port = place.hostname or "", place.port or _DEFAULT_PORT
    try:
        with (
            socket.create_connection((host, port), seconds) as line,
            context.wrap_socket(line, server_hostname=host) as greeted,
        ):
            return Reached("answers", version=read_version(greeted) if place.scheme == "tls" else "")
    except OSError as error:
        # A full server speaks in plain text and closes, which TLS finds wrong, or finds closed.
        if _is_full(host, port):
            return Reached("full")
        if isinstance(error, ssl.SSLError):
            return Reached("foreign", str(error.reason or error))
        return Reached("silent", str(error.strerror or error))


def read_version(line: socket.socket) -> str:
    """The version in the greeting that a server sends first; empty where it sends none that can be read in time."""
    greeting, until = b"", time.monotonic() + DIAL_SECONDS
    try:
        while b"\r\n" not in greeting and len(greeting) < _GREETING_BYTES:
            # One deadline for the whole: a server that sends a byte at a time holds nobody up for longer.
            if (left := until - time.monotonic()) <= 0:
                return ""
            line.settimeout(left)
            if not (more := line.recv(4096)):
                break
            greeting += more
        version = json.loads(greeting.partition(b"\r\n")[0].removeprefix(b"INFO "))["version"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return ""
    return version if isinstance(version, str) and parse_version(version) else ""


def dial_relay(relay: Relay) -> Reached:
    return dial(relay.address, relay.context())


def _is_full(host: str, port: int) -> bool:
    """A full server says so in plain text, before any handshake."""
    try:
        with socket.create_connection((host, port), _FULL_SECONDS) as line:
            return _FULL in line.recv(256)
    except OSError:
        return False
