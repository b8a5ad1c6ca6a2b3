"""A server with the pinned certificate that sends a nonce of its choice and keeps what a client signs."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from comity.crypto.sealing import Identity, verify_signature
from comity.errors import Malformed
from comity.federation.messages import heads, signatures
from comity.relay.certificate import CERTIFICATE, KEY, create_certificate
from comity.relay.invitation import INVITATION, Invitation
from comity.site import pack
from comity.study.results import signatures as results


class HostileRelay:
    def __init__(self, folder: Path, nonce: str) -> None:
        home = folder / f"relay-{abs(hash(nonce))}"
        self.invitation, self._nonce = home / INVITATION, nonce
        self.signatures: list[bytes] = []
        self._lines: list[socket.socket] = []
        pem = create_certificate(home, "127.0.0.1")
        self._server = socket.create_server(("127.0.0.1", 0))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(home / CERTIFICATE, home / KEY)
        address = f"tls://127.0.0.1:{self._server.getsockname()[1]}"
        self.invitation.write_text(Invitation(address, pem).to_toml())
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The client is gone by now, and does not always close its end.
        for line in self._lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._server.close()

    def _serve(self) -> None:
        """Greet one client, and read its CONNECT."""
        info = {"server_id": "x", "version": "2.15.1", "auth_required": True, "max_payload": 1000, "nonce": self._nonce}
        self._server.settimeout(10)
        try:
            line, _ = self._server.accept()
            line.settimeout(5)
            with self._context.wrap_socket(line, server_side=True) as client:
                self._lines.append(client)
                client.sendall(f"INFO {json.dumps(info)}\r\n".encode())
                said = b""
                while b"\r\n" not in said and (more := client.recv(4096)):
                    said += more
                options: dict[str, Any] = json.loads(said.partition(b"\r\n")[0].partition(b" ")[2] or b"{}")
                if "sig" in options:
                    self.signatures.append(base64.b64decode(options["sig"]))
                    client.sendall(b"-ERR 'Authorization Violation'\r\n")
        except OSError:
            pass


class _Recorder(Identity):
    """Keeps what it is asked to sign."""

    def __init__(self) -> None:
        super().__init__(bytes(32))
        self.signed: list[bytes] = []

    def sign(self, data: bytes) -> bytes:
        self.signed.append(data)
        return super().sign(data)


def comity_statements() -> list[bytes]:
    """What the keys that studies pin sign: one of each kind."""
    keys = _Recorder()
    signatures.sign_ask(keys, "north", b"ask")
    signatures.sign_reply(keys, "north", bytes(100), b"reply")
    signed: Any = signatures
    keys.signed.append(signed._said("study", "run", "model", "path", b"value"))
    keys.signed.append(pack._signed(b"body"))
    keys.signed.append(heads._text("north", "ledger", 3, "head"))
    keys.signed.append(results._statement("study", "run", {"result.json": "digest"}))
    keys.signed.append(results._export_statement(b"statement"))
    # The relay key's own statement, which this signs.
    keys.to_texts()
    return keys.signed


def hostile_nonces() -> list[str]:
    """Statements as the text of a nonce, each byte a character; and texts that are no nonce of the server."""
    return [
        *(one.decode("latin-1") for one in comity_statements()),
        "",
        "x" * 4000,
        "abc def ghi jkl",
        "CMY1l\x00\x00\x00\x02",
    ]


def verifies(public: bytes, signature: bytes, data: bytes) -> bool:
    try:
        verify_signature(public, signature, data)
    except Malformed:
        return False
    return True
