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
from typing import Literal, Self
from urllib.parse import urlsplit

from comity.crypto import key_file
from comity.crypto.relay_key import RelayKey
from comity.errors import BadInput
from comity.relay.invitation import Invitation
from comity.relay.server_version import parse_version


@dataclass(frozen=True)
class RelayAddress:
    """Where the relay is, the invitation that pins its certificate, and the key file that identifies this member to it.
    Both files are read again for each connection, so a running site takes up new ones."""

    address: str
    invitation: Path
    keys: Path

    def __post_init__(self) -> None:
        if not self.address.startswith(("tls://", "wss://")) or not _has_host_and_port(self.address):
            raise BadInput(
                f"address = {self.address!r}: expected tls://HOST:PORT, or wss://HOST:PORT for a websocket",
                key="address",
            )

    @classmethod
    def load(cls, invitation: Path, keys: Path) -> Self:
        """The relay of an invitation, for the member with this key file."""
        try:
            return cls(Invitation.load(invitation).address, invitation, keys)
        except BadInput as error:
            if error.key != "address":
                raise
            raise BadInput(f"{invitation}: {error}; ask the consortium's holder", key="invitation") from None

    @property
    def is_websocket(self) -> bool:
        return self.address.startswith("wss://")

    def check_files(self) -> None:
        """Refuse missing, expired or unusable files before anything waits for a connection."""
        if self.is_websocket and find_spec("aiohttp") is None:
            raise BadInput(
                f"{self.invitation}: address = {self.address!r}: a websocket needs the extra deploy-websocket; install "
                "it: pip install 'comity[deploy-websocket]', or use the other invitation, with tls://",
                key="invitation",
            )
        self.relay_key()
        invitation = Invitation.load(self.invitation)
        if invitation.valid_until <= datetime.now(UTC):
            raise BadInput(
                f"{self.invitation}: the relay's certificate expired on {invitation.valid_until:%Y-%m-%d}; ask the "
                "consortium's holder for a new invitation",
                key="invitation",
            )
        self.tls_context()

    def require_member(self, name: str) -> None:
        """Refuse keys that the invitation lists under another name, and another key under this one. A name that the
        invitation does not list may have been admitted since: the relay decides."""
        self.check_files()
        invitation, user = Invitation.load(self.invitation), self.relay_key().user
        owner, listed = invitation.name_of(user), invitation.members.get(name)
        if owner is not None and owner != name:
            raise BadInput(
                f"{self.keys}: {self.invitation} lists this key for {owner!r}, not for {name!r}; use the key file of "
                f"{name}, or correct the name",
                code="name",
                key="keys",
            )
        if listed is not None and listed.key != user:
            raise BadInput(
                f"{self.keys}: {self.invitation} lists another key for {name!r}; put that key file back, or send "
                "comity keys show to the consortium's holder, who runs comity consortium add",
                code="keys",
                key="keys",
            )

    def relay_key(self) -> RelayKey:
        return key_file.load_relay_key(self.keys)

    def tls_context(self) -> ssl.SSLContext:
        """TLS 1.3 to a server that has the pinned certificate, and no other."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # The pinned certificate is the end of the chain, although it may not sign others.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=Invitation.load(self.invitation).certificate)
        except (ssl.SSLError, ValueError) as error:
            raise BadInput(
                f"{self.invitation}: the relay's certificate can't be used ({error}); ask the consortium's holder",
                key="invitation",
            ) from error
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
                return f"{address}: answers, with the certificate of your invitation"
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
