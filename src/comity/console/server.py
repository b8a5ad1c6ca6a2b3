"""Serving a console: a process of its own, which the site does not wait for."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from comity.console.guard import Address, Application
from comity.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

PORT = 8750
_MAX_CONNECTIONS = 64
_HEADER_BYTES = 32 << 10


def open_socket(address: Address) -> socket.socket:
    """A listening socket; refused where another process has the port."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((address.host.strip("[]"), address.port))
        opened.listen(_MAX_CONNECTIONS)
    except OSError as error:
        opened.close()
        raise BadInput(
            f"{address.host}:{address.port}: can't be opened ({error.strerror}); choose another: --port NUMBER",
            key="port",
        ) from error
    return opened


def serve(
    app: Application,
    address: Address,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until the process is stopped. `ready` is called when the port is open."""
    import uvicorn

    if address.tls:
        for path in (certificate, key):
            if path is None or not path.is_file():
                raise BadInput(f"{path}: the file of the certificate or of its key is missing", key="certificate")
    opened = open_socket(address)
    config = uvicorn.Config(
        app,
        ssl_certfile=None if certificate is None else str(certificate),
        ssl_keyfile=None if key is None else str(key),
        # Addresses of pages may hold a link's secret; the console has a log of its own.
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        limit_concurrency=_MAX_CONNECTIONS,
        h11_max_incomplete_event_size=_HEADER_BYTES,
        timeout_graceful_shutdown=2,
    )
    ready()
    with opened:
        uvicorn.Server(config).run(sockets=[opened])
