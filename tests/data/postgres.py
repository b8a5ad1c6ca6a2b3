"""A PostgreSQL cluster of a test's own: made with `initdb`, on a socket and a loopback port, gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PASSWORD = "correct-horse-battery"


@dataclass(frozen=True)
class Cluster:
    port: int
    socket: Path

    @property
    def url(self) -> str:
        """Over loopback, where a password is asked for."""
        return f"postgresql+psycopg://reader@127.0.0.1:{self.port}/clinic"

    @property
    def socket_url(self) -> str:
        """Over the socket, where everybody is trusted."""
        return f"postgresql+psycopg://reader@/clinic?host={self.socket}&port={self.port}"


def programs() -> Path | None:
    """The newest of Debian's PostgreSQL binaries."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    return found[-1] if found and (found[-1] / "initdb").exists() else None


def absent() -> str | None:
    """Why there is no PostgreSQL to test with, or None."""
    if programs() is None:
        return "PostgreSQL is not installed (apt-get install postgresql)"
    if find_spec("psycopg") is None:
        return "psycopg, the driver, is not installed (pip install 'comity[dev]')"
    if os.geteuid() == 0 and _other() is None:
        return "PostgreSQL does not run as root, and there is no user nobody or postgres"
    return None


@contextmanager
def cluster(sql: str) -> Iterator[Cluster]:
    """A running cluster with a database `clinic`, in which `sql` was executed by its owner."""
    place = Path(tempfile.mkdtemp(prefix="comity-pg-", dir="/tmp"))
    user = _other() if os.geteuid() == 0 else None
    try:
        secret = place / "secret"
        secret.write_text(PASSWORD + "\n")
        if user is not None:
            for path in (place, secret):
                os.chown(path, user.pw_uid, user.pw_gid)
        data, port = place / "data", _free_port()
        _run(user, "initdb", "-D", data, "-U", "owner", "--auth-local=trust", "--auth-host=scram-sha-256",
             f"--pwfile={secret}", "-E", "UTF8", "--no-sync", "--locale=C")  # fmt: skip
        settings = f"-p {port} -k {place} -c listen_addresses=127.0.0.1 -c fsync=off -c timezone=Asia/Tokyo"
        _run(user, "pg_ctl", "-D", data, "-o", settings, "-l", place / "log", "-w", "start")
        try:
            made = Cluster(port, place)
            role = f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'"
            _run(user, "psql", "-h", place, "-p", port, "-U", "owner", "-d", "postgres", "-q",
                 "-c", role, "-c", "CREATE DATABASE clinic OWNER reader")  # fmt: skip
            _run(user, "psql", "-h", place, "-p", port, "-U", "reader", "-d", "clinic", "-q", "-c", sql)
            yield made
        finally:
            _run(user, "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _other() -> pwd.struct_passwd | None:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _run(user: pwd.struct_passwd | None, program: str, *arguments: object) -> None:
    folder = programs()
    assert folder is not None
    who: dict[str, Any] = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": ()}
    done = subprocess.run(
        [str(folder / program), *map(str, arguments)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd="/", timeout=60, text=True,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"}, **who,
    )  # fmt: skip
    assert done.returncode == 0, f"{program}: {done.stderr}"
