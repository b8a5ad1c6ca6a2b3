"""What every request to a console must be before a page sees it, and what every response carries.

Promise    A request is answered only if its Host is one of this console's, a form only if its Origin is the same. No
           response can be framed, run a script, load or send anything elsewhere, or be kept by a cache. Without TLS
           only this machine is answered.
Against    Other sites in the same browser: rebound names, forms sent from elsewhere, frames, injected markup.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from comity.errors import BadInput

MAX_FORM_BYTES = 64 << 10
POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    # Not "no-referrer": browsers would then send "Origin: null" with this console's own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "cache-control": "no-store",
}

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class Address:
    """Where a console is reached. `names` are the host names that people type, without the port."""

    host: str
    port: int
    names: tuple[str, ...]
    tls: bool = False

    @classmethod
    def of(cls, host: str, port: int, names: tuple[str, ...] = (), *, tls: bool = False) -> Address:
        """Refuses an address that others can reach unless a certificate protects it."""
        if is_loopback(host):
            return cls(host, port, (*names, "127.0.0.1", "localhost", "[::1]"), tls)
        if not tls:
            raise BadInput(
                f"--host {host} is reached from other machines, and without TLS passwords and cookies would cross the "
                "network in the clear; give --certificate and --key, or use a tunnel to 127.0.0.1",
                key="host",
            )
        if not names:
            raise BadInput(
                f"--host {host} is reached under a name; give it: --name console.example.org, as people type it",
                key="name",
            )
        return cls(host, port, names, tls)

    @property
    def scheme(self) -> str:
        return "https" if self.tls else "http"

    @property
    def url(self) -> str:
        """The address to print."""
        default = 443 if self.tls else 80
        return f"{self.scheme}://{self.names[0]}" + ("" if self.port == default else f":{self.port}")

    @property
    def hosts(self) -> frozenset[str]:
        """The values of a Host header that are answered."""
        bare = self.names if self.port == (443 if self.tls else 80) else ()
        return frozenset((*bare, *(f"{name}:{self.port}" for name in self.names)))

    @property
    def cookie(self) -> str:
        """Cookies know no ports, so each console on this machine has a name of its own for its cookie."""
        return f"__Host-comity-{self.port}" if self.tls else f"comity-{self.port}"


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """Wraps an application."""

    def __init__(self, app: Application, address: Address) -> None:
        self._app, self._address = app, address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # A console has no websockets and no lifespan events.
            return
        problem = self._problem(scope)
        if problem is not None:
            await _respond(self._guarded(send), *problem)
            return
        await self._app(scope, receive, self._guarded(send))

    def _problem(self, scope: Scope) -> tuple[int, str] | None:
        """Status and sentence of a refusal."""
        address = self._address
        hosts, origins, lengths = (_values(scope, name) for name in (b"host", b"origin", b"content-length"))
        client = scope.get("client")
        if not address.tls and client is not None and not is_loopback(client[0]):
            return 403, "Without TLS this console answers this machine only."
        if len(hosts) != 1 or hosts[0] not in address.hosts:
            return 421, f"This console is reached as {address.url}."
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "This console answers GET and POST."
        if scope["method"] == "POST" and origins != [f"{address.scheme}://{hosts[0]}"]:
            return 403, "This form was not sent from a page of this console. Open the page again and repeat."
        if lengths and not (lengths[0].isdecimal() and len(lengths[0]) < 9 and int(lengths[0]) <= MAX_FORM_BYTES):
            return 413, "This form is too long."
        return None

    def _guarded(self, send: Send) -> Send:
        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                # A page may keep its own Cache-Control, for the stylesheet; nothing else is left to it.
                fixed = {name: value for name, value in HEADERS.items() if name != "cache-control"}
                if b"cache-control" not in present:
                    fixed["cache-control"] = HEADERS["cache-control"]
                if self._address.tls:
                    fixed["strict-transport-security"] = "max-age=31536000"
                kept = [one for one in message["headers"] if one[0].lower().decode("latin-1") not in fixed]
                message["headers"] = kept + [(name.encode(), value.encode()) for name, value in fixed.items()]
            await send(message)

        return guarded


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


async def _respond(send: Send, status: int, sentence: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": sentence.encode() + b"\n"})
