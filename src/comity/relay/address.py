"""The relay's address, the files with which a member authenticates, and a probe of what answers there."""

from __future__ import annotations

import json
import socket
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from comity.errors import BadInput
from comity.relay.server_version import parse_version


def _is_dialled(address: str) -> bool:
    """Whether there is a host and, if any, a port that can be dialled. Libraries raise various errors otherwise, and
    only once they dial."""
    try:
        place = urlsplit(address)
        return bool((place.hostname or "").encode("idna")) and place.port != 0
    except ValueError:
        return False


@dataclass(frozen=True)
class Relay:
    """Where the relay is and who we are to it. Key and authority lie beside the certificate, if not said otherwise."""

    address: str
    certificate: Path
    key: Path = Path()
    authority: Path = Path()

    def __post_init__(self) -> None:
        for name in ("key", "authority"):
            if getattr(self, name) == Path():
                object.__setattr__(self, name, self.certificate.with_name(f"{name}.pem"))
        if not self.address.startswith(("tls://", "wss://")) or not _is_dialled(self.address):
            raise BadInput(
                f"relay.address = {self.address!r}: expected tls://HOST:PORT, or wss://HOST:PORT for a websocket",
                key="relay.address",
            )

    @property
    def is_websocket(self) -> bool:
        return self.address.startswith("wss://")

    def require(self) -> None:
        """Refuses files with which nobody could dial, before anything waits for a connection."""
        from comity.relay.certificates import load_certificate

        if self.is_websocket and find_spec("aiohttp") is None:
            raise BadInput(
                f"relay.address = {self.address!r}: a websocket needs the extra deploy-websocket; install it: "
                "pip install 'comity[deploy-websocket]', or dial tls://HOST:PORT",
                key="relay.address",
            )

        for path, what in ((self.certificate, "certificate"), (self.key, "key"), (self.authority, "authority")):
            if not path.is_file():
                remedy = "put it there: comity consortium join INVITATION --certificate FILE"
                raise BadInput(f"{path}: there is no {what} for the relay here; {remedy}", key=f"relay.{what}")
        end = load_certificate(self.certificate).not_valid_after_utc
        if end <= datetime.now(UTC):
            raise BadInput(
                f"{self.certificate}: this certificate ended on {end:%Y-%m-%d}; ask for a new one: "
                "comity consortium join",
                key="relay.certificate",
            )
        try:
            self.context()
        except (ssl.SSLError, OSError) as error:
            raise BadInput(
                f"{self.certificate}: this certificate, {self.key.name} and {self.authority.name} can't be used "
                f"together ({error}); join again",
                key="relay.certificate",
            ) from error

    def context(self) -> ssl.SSLContext:
        """TLS 1.3 with our certificate, to a relay that this consortium's authority vouches for and nobody else."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cafile=str(self.authority))
        context.load_cert_chain(self.certificate, self.key)
        return context


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
