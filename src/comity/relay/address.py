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


@dataclass(frozen=True)
class RelayAddress:
    """Where the relay is, and the files that identify this member to it. Key and authority default to the files beside
    the certificate."""

    address: str
    certificate: Path
    key: Path = Path()
    authority: Path = Path()

    def __post_init__(self) -> None:
        for name in ("key", "authority"):
            if getattr(self, name) == Path():
                object.__setattr__(self, name, self.certificate.with_name(f"{name}.pem"))
        if not self.address.startswith(("tls://", "wss://")) or not _has_host_and_port(self.address):
            raise BadInput(
                f"relay.address = {self.address!r}: expected tls://HOST:PORT, or wss://HOST:PORT for a websocket",
                key="relay.address",
            )

    @property
    def is_websocket(self) -> bool:
        return self.address.startswith("wss://")

    def check_files(self) -> None:
        """Refuse missing, expired or mismatched files before anything waits for a connection."""
        from comity.relay.certificates import load_certificate

        if self.is_websocket and find_spec("aiohttp") is None:
            raise BadInput(
                f"relay.address = {self.address!r}: a websocket needs the extra deploy-websocket; install it: "
                "pip install 'comity[deploy-websocket]', or use tls://HOST:PORT",
                key="relay.address",
            )

        for path, what in ((self.certificate, "certificate"), (self.key, "key"), (self.authority, "authority")):
            if not path.is_file():
                remedy = "put it there: comity consortium join INVITATION --certificate FILE"
                raise BadInput(f"{path}: there is no {what} for the relay here; {remedy}", key=f"relay.{what}")
        end = load_certificate(self.certificate).not_valid_after_utc
        if end <= datetime.now(UTC):
            raise BadInput(
                f"{self.certificate}: this certificate expired on {end:%Y-%m-%d}; request a new one: "
                "comity consortium join",
                key="relay.certificate",
            )
        try:
            self.tls_context()
        except (ssl.SSLError, OSError) as error:
            raise BadInput(
                f"{self.certificate}: this certificate, {self.key.name} and {self.authority.name} do not belong "
                f"together ({error}); join again: comity consortium join",
                key="relay.certificate",
            ) from error

    def tls_context(self) -> ssl.SSLContext:
        """TLS 1.3 with this member's certificate, to a relay that the consortium's authority certified and no other."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cafile=str(self.authority))
        context.load_cert_chain(self.certificate, self.key)
        return context


def _has_host_and_port(address: str) -> bool:
    """Whether the host and, if given, the port are valid. Libraries raise various errors otherwise, and only once they
    connect."""
    try:
        place = urlsplit(address)
        return bool((place.hostname or "").encode("idna")) and place.port != 0
    except ValueError:
        return False


PROBE_SECONDS = 3.0
"""The limit for each of: connecting, the handshake, and reading the greeting."""
_FULL_SECONDS = 1.0
_FULL = b"maximum connections exceeded"
_DEFAULT_PORT = 4222
_GREETING_BYTES = 8192


@dataclass(frozen=True)
class ProbeResult:
    """What answers at an address: the relay, a full relay, another server, or nothing. `detail` is what the system or
    TLS reported. `version` is the server's version from its greeting; a websocket sends none."""

    state: Literal["answers", "full", "foreign", "silent"]
    detail: str = ""
    version: str = ""

    def explain(self, address: str) -> str:
        """One sentence with what to do."""
        match self.state:
            case "answers":
                return f"{address}: answers, with a certificate of your authority"
            case "full":
                return f"{address}: is full and takes no connection now; try again in a minute, or ask its operator"
            case "foreign":
                return f"{address}: answers, but not as your relay ({self.detail}); ask its operator"
            case "silent":
                return f"{address}: does not answer ({self.detail}); check your firewall, or ask its operator"


def probe(address: str, context: ssl.SSLContext, *, seconds: float = PROBE_SECONDS) -> ProbeResult:
    """Connect and do the TLS handshake, nothing more: this does not tell whether the relay admits the member."""
    place = urlsplit(address)
    host, port = place.hostname or "", place.port or _DEFAULT_PORT
    try:
        with (
            socket.create_connection((host, port), seconds) as line,
            context.wrap_socket(line, server_hostname=host) as greeted,
        ):
            return ProbeResult("answers", version=read_server_version(greeted) if place.scheme == "tls" else "")
    except OSError as error:
        # A full server answers in plain text and closes, which TLS reports as an error or as a closed connection.
        if _is_full(host, port):
            return ProbeResult("full")
        if isinstance(error, ssl.SSLError):
            return ProbeResult("foreign", str(error.reason or error))
        return ProbeResult("silent", str(error.strerror or error))


def probe_relay(relay: RelayAddress) -> ProbeResult:
    return probe(relay.address, relay.tls_context())


def read_server_version(line: socket.socket) -> str:
    """The version in the server's greeting; empty if no readable greeting arrives in time."""
    greeting, until = b"", time.monotonic() + PROBE_SECONDS
    try:
        while b"\r\n" not in greeting and len(greeting) < _GREETING_BYTES:
            # One deadline for the whole greeting: a server that sends a byte at a time gains nothing.
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


def _is_full(host: str, port: int) -> bool:
    """A full server says so in plain text, before any handshake."""
    try:
        with socket.create_connection((host, port), _FULL_SECONDS) as line:
            return _FULL in line.recv(256)
    except OSError:
        return False
