"""Where the relay is, and the files with which a member dials it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from comity.errors import BadInput


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
