"""Notices to an owner: a command or a webhook of the owner's is told that a study arrived, a run ended, a budget is low
or the membership ends soon.

Promise    Asks never wait for a notice. A thread of its own looks at the site's files every few seconds and sends one
           notice after the other, each with a timeout and at most `MAX_ATTEMPTS` attempts.
           One notice is sent for an event: what was sent is remembered in a file beside the site file. A process that
           is killed between the sending and the remembering sends it again, with the same `id`.
           A notice has the event, the names of party, study and dataset, hashes and a run's id; nothing of records, and
           no figure of the ledger.
Against    A submitter, who chooses a study's name: the name is escaped, and no part of a notice is in the command's
           words. A receiver that hangs, answers slowly or sends elsewhere. A listener on the network: webhooks use
           HTTPS, or stay on this machine, and are signed if the site file names a secret.
Not        A notice to somebody else than the owner: the receiver learns that the site takes part in a study.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import logging
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field

from comity.errors import BadInput, ComityError, StudyError
from comity.files import is_shared, locked, write_atomically
from comity.methods.tables import Table
from comity.untrusted.text import escape_line

if TYPE_CHECKING:
    from comity.privacy.ledger import Account
    from comity.site.inbox import Arrival
    from comity.site.site_file import SiteFile
    from comity.site.status import SiteRun

log = logging.getLogger("comity.site")

Event = Literal["study-arrived", "run-ended", "budget-below", "entry-ends"]
EVENTS: Final[tuple[Event, ...]] = ("study-arrived", "run-ended", "budget-below", "entry-ends")
SOON = timedelta(days=30)
"""How long before the end of the membership the owner is told."""
NAME = "notices.json"
POLL_SECONDS = 5.0
TIMEOUT_SECONDS = 10.0
MAX_ATTEMPTS = 3
RETRY_SECONDS = (30.0, 300.0)
"""From the first attempt to the second, and from there to the third."""
_MAX_NAME = 200
_MIN_SECRET_BYTES = 16
_FORMAT = "comity-notices-1"
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")


class NoticesTable(Table):
    """Where an owner's notices go."""

    command: tuple[str, ...] = ()
    webhook: str | None = Field(None, min_length=1)
    secret: str | None = Field(None, min_length=1)
    events: tuple[Event, ...] = EVENTS
    budget_below: float = Field(0.5, gt=0, le=1)


def check_notices(table: NoticesTable, where: str) -> None:
    """Refuse a table that could send nothing, or something to others."""

    def wrong(key: str, sentence: str) -> StudyError:
        return StudyError(f"{where}: notices.{key}: {sentence}", key=f"notices.{key}")

    if not table.command and table.webhook is None:
        raise wrong("command", 'expected command = ["program", ...] or webhook = "https://...", found neither')
    if table.command and not table.command[0].strip():
        raise wrong("command", "expected a program as its first word, found an empty text")
    if table.secret is not None and table.webhook is None:
        raise wrong("secret", "signs a webhook, and there is none; add notices.webhook or remove it")
    if table.webhook is not None and not _is_allowed(table.webhook):
        # The address may contain a token: it is not repeated.
        raise wrong("webhook", "expected an https:// address, or http:// on this machine (127.0.0.1, ::1, localhost)")


def _is_allowed(address: str) -> bool:
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not host or parts.username is not None or any(ord(one) <= 32 or ord(one) == 127 for one in address):
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Notice:
    """One event. `key` tells it from others of its kind at this site. `is_past` events are not told when notices are
    turned on: the owner knows them."""

    event: Event
    key: str
    party: str
    study: str = ""
    name: str = ""
    dataset: str = ""
    run: str = ""
    state: str = ""
    below: float | None = None
    ends: str = ""
    is_past: bool = False

    @property
    def id(self) -> str:
        """The same for each attempt, and for no other event: a receiver can drop what it received before."""
        return hashlib.sha256(json.dumps([self.party, self.event, self.key]).encode()).hexdigest()[:32]

    def document(self, when: datetime) -> dict[str, Any]:
        """What leaves, without empty fields."""
        fields = {
            "event": self.event,
            "id": self.id,
            "party": self.party,
            "study": self.study,
            "name": self.name,
            "dataset": self.dataset,
            "run": self.run,
            "state": self.state,
            "below": self.below,
            "ends": self.ends,
            "time": when.astimezone(UTC).isoformat(timespec="seconds"),
        }
        return {key: value for key, value in fields.items() if value not in ("", None)}


def find_notices(
    party: str,
    table: NoticesTable,
    *,
    arrivals: Sequence[Arrival],
    runs: Sequence[SiteRun],
    accounts: Sequence[Account],
    ends: datetime | None,
    now: datetime,
) -> list[Notice]:
    """Everything that an owner is to be told, whether it was told or not."""
    names = {one.study: _shown(one.name) for one in arrivals}
    found = [
        Notice("study-arrived", study, party, study, names[study], is_past=is_decided)
        for study, is_decided in ((one.study, one.decision is not None) for one in arrivals)
    ]
    for run in (one for one in runs if one.state != "open"):
        study = next((known for known in names if run.is_of(known)), run.mark)
        name, shown = names.get(study, _shown(run.title)), _shown(run.run)
        found.append(
            Notice("run-ended", run.key, party, study, name, run.dataset, run=shown, state=run.state, is_past=True)
        )
    for account in accounts:
        share, below = left_fraction(account), table.budget_below
        if share is not None and share < below:
            key = f"{account.dataset}/{below}"
            found.append(Notice("budget-below", key, party, dataset=account.dataset, below=below))
    if ends is not None and ends - now < SOON:
        date = f"{ends.astimezone(UTC):%Y-%m-%d}"
        found.append(Notice("entry-ends", date, party, ends=date))
    return [one for one in found if one.event in table.events]


def left_fraction(account: Account) -> float | None:
    """The part of the granted epsilon that is left; None where nothing is granted."""
    if account.granted is None or account.left is None:
        return None
    granted = float(account.granted.epsilon)
    return max(0.0, min(1.0, float(account.left) / granted)) if granted > 0 else 0.0


def _shown(name: str) -> str:
    return escape_line(name[:_MAX_NAME])


class Memory:
    """How often each notice was tried by each sender, and whether that succeeded, in a file of the owner's."""

    def __init__(self, home: Path) -> None:
        self._path = home / NAME
        self._tried: dict[str, dict[str, Any]] | None = None

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever remembered here. A damaged file counts as none: the owner is told again what may
        need an action, and nothing of the past."""
        return self._load() is None

    def attempts(self, sender: str, notice: Notice) -> int:
        """How often it was tried; `MAX_ATTEMPTS` once it was sent."""
        return int((self._load() or {}).get(f"{sender} {notice.id}", {}).get("attempts", 0))

    def last(self, sender: str, notice: Notice) -> float:
        """When it was last tried, in seconds since 1970."""
        return float((self._load() or {}).get(f"{sender} {notice.id}", {}).get("last", 0.0))

    def note(self, sender: str, notices: Sequence[Notice], attempts: int, when: float) -> None:
        tried = {} if self._tried is None else self._tried
        tried |= {f"{sender} {one.id}": {"attempts": attempts, "last": when} for one in notices}
        self._write(tried)

    def keep_only(self, senders: Sequence[str], notices: Sequence[Notice]) -> None:
        """Forget what is over: a budget that was raised may fall below again, and removed studies take no space."""
        known = {f"{sender} {one.id}" for sender in senders for one in notices}
        tried = self._load()
        if tried is not None and not tried.keys() <= known:
            self._write({key: value for key, value in tried.items() if key in known})

    def _load(self) -> dict[str, dict[str, Any]] | None:
        if self._tried is None:
            try:
                page = json.loads(self._path.read_text(encoding="utf-8"))
                if page["format"] != _FORMAT:
                    raise ValueError("another format")
                self._tried = {
                    str(key): {"attempts": int(one["attempts"]), "last": float(one["last"])}
                    for key, one in page["tried"].items()
                }
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                return None
        return self._tried

    def _write(self, tried: dict[str, dict[str, Any]]) -> None:
        self._tried = tried
        write_atomically(self._path, json.dumps({"format": _FORMAT, "tried": tried}, indent=1) + "\n")


# Sending.


def run_command(words: Sequence[str], body: bytes, folder: Path) -> str:
    """Run the owner's command with the notice on its standard input, in the site's folder, without a shell and with few
    variables of the environment. Returns why it failed, or nothing. What it prints is dropped."""
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    try:
        process = subprocess.Popen(
            list(words),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return f"the command can't be started ({type(error).__name__})"
    try:
        process.communicate(body, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return f"the command did not end within {TIMEOUT_SECONDS:.0f} s and was killed"
    finally:
        # Also what the command started and left behind.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
    return "" if process.returncode == 0 else f"the command ended with code {process.returncode}"


def post_webhook(address: str, body: bytes, secret: bytes | None, when: datetime) -> str:
    """POST the notice as JSON. Redirects are not followed: they could lead elsewhere. Returns why it failed, or
    nothing; the address, which may contain a token, is not repeated."""
    parts = urlsplit(address)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    headers = {"Content-Type": "application/json", "User-Agent": "comity", "Connection": "close"}
    if secret is not None:
        headers |= sign_body(body, secret, when)
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS)
    # Each wait for a byte has a timeout; a server that sends one now and then has none without this.
    watchdog = threading.Timer(2 * TIMEOUT_SECONDS, lambda: _shut(connection))
    watchdog.daemon = True
    watchdog.start()
    try:
        connection.request("POST", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), body, headers)
        status = connection.getresponse().status
    except (OSError, HTTPException, ValueError) as error:
        return f"the webhook did not answer ({type(error).__name__})"
    finally:
        watchdog.cancel()
        connection.close()
    return "" if 200 <= status < 300 else f"the webhook answered with status {status}"


def _shut(connection: HTTPConnection) -> None:
    if connection.sock is not None:
        with suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


def sign_body(body: bytes, secret: bytes, when: datetime) -> dict[str, str]:
    """Headers with which a receiver that has the secret checks sender and age: HMAC-SHA-256 of time, "." and body."""
    stamp = str(int(when.timestamp()))
    mac = hmac.new(secret, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {"Comity-Time": stamp, "Comity-Signature": f"sha256={mac}"}


def read_secret(path: Path) -> bytes:
    """The secret of a webhook, without white space around it; refused if others can read it or it is short."""
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise BadInput(f"{path}: the webhook's secret can't be read ({error.strerror}); make the file") from None
    if is_shared(path):
        raise BadInput(f"{path}: others can read the webhook's secret; run: chmod 600 {path}")
    if len(secret) < _MIN_SECRET_BYTES:
        raise BadInput(f"{path}: expected a secret of {_MIN_SECRET_BYTES} bytes or more, found {len(secret)}")
    return secret


# Watching.


class Notifier:
    """Looks at a site's files and sends what is new. `look` is called again and again, by one thread."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        stop: threading.Event | None = None,
    ) -> None:
        self._path = path
        self._clock = clock
        self._stop = stop or threading.Event()
        self._read: tuple[tuple[int, ...], SiteFile] | None = None

    def look(self) -> int:
        """Send what is due now; returns how many notices were sent. A site without [notices] sends nothing."""
        site = self._site()
        if site.notices is None:
            return 0

        def blocked() -> BadInput:
            return BadInput(f"{site.home / NAME}: another process sends the notices of this site", code="serving")

        with locked(site.home / f"{NAME}.sending", seconds=0, blocked=blocked):
            return self._look(site, site.notices)

    def _site(self) -> SiteFile:
        """The site file, read again when it changes: of many sites of a process each pins the keys of all others."""
        from comity.site.site_file import SiteFile

        try:
            found = self._path.stat()
        except OSError:
            return SiteFile.load(self._path)
        state = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if self._read is None or self._read[0] != state:
            self._read = state, SiteFile.load(self._path)
        return self._read[1]

    def _look(self, site: SiteFile, table: NoticesTable) -> int:
        memory, found, senders = Memory(site.home), self._find(site, table), _senders(table)
        if memory.is_new:
            past = [one for one in found if one.is_past]
            for sender in senders:
                memory.note(sender, past, MAX_ATTEMPTS, self._clock().timestamp())
        memory.keep_only(senders, found)
        due = [(one, sender) for one in found for sender in senders if self._is_due(memory, sender, one)]
        return sum(self._send(site, table, memory, sender, notice) for notice, sender in due if not self._stop.is_set())

    def _find(self, site: SiteFile, table: NoticesTable) -> list[Notice]:
        from comity.privacy.ledger import Ledger
        from comity.site.entry_end import entry_end
        from comity.site.inbox import Inbox
        from comity.site.status import list_runs

        ledger = Ledger(site.ledger)
        return find_notices(
            site.party,
            table,
            arrivals=Inbox(site.home).arrivals(),
            runs=list_runs(ledger),
            accounts=ledger.summary(),
            ends=entry_end(site),
            now=self._clock(),
        )

    def _is_due(self, memory: Memory, sender: str, notice: Notice) -> bool:
        attempts = memory.attempts(sender, notice)
        if attempts == 0:
            return True
        if attempts >= MAX_ATTEMPTS:
            return False
        since = self._clock().timestamp() - memory.last(sender, notice)
        # A clock that went back does not postpone an attempt for ever.
        return since < 0 or since >= RETRY_SECONDS[attempts - 1]

    def _send(self, site: SiteFile, table: NoticesTable, memory: Memory, sender: str, notice: Notice) -> bool:
        when, attempt = self._clock(), memory.attempts(sender, notice) + 1
        # Noted before: however often the process is killed meanwhile, attempts are bounded.
        memory.note(sender, [notice], attempt, when.timestamp())
        body = json.dumps(notice.document(when)).encode()
        try:
            if sender == "command":
                failure = run_command(table.command, body, site.home)
            else:
                secret = None if table.secret is None else read_secret(site.home / table.secret)
                failure = post_webhook(str(table.webhook), body, secret, when)
        except ComityError as error:
            failure = str(error)
        if not failure:
            memory.note(sender, [notice], MAX_ATTEMPTS, when.timestamp())
            log.info("%s sent the notice %s", site.party, notice.event)
            return True
        more = "it is tried again" if attempt < MAX_ATTEMPTS else "it is not tried again"
        log.warning("%s: the notice %s was not sent: %s; %s", site.party, notice.event, failure, more)
        return False

    def watch(self) -> None:
        """Look until `stop` is set. What goes wrong is logged once until it changes: the service says what is wrong
        with the site itself."""
        said = ""
        while not self._stop.is_set():
            try:
                self.look()
                said = ""
            except Exception as error:
                words = str(error) if isinstance(error, ComityError) else type(error).__name__
                if words != said:
                    log.warning("notices can't be sent: %s", words)
                said = words
            self._stop.wait(POLL_SECONDS)


def _senders(table: NoticesTable) -> list[str]:
    return [*(["command"] if table.command else []), *(["webhook"] if table.webhook is not None else [])]


@contextmanager
def send_notices(path: Path) -> Iterator[None]:
    """Watch a site and send its notices while the block runs. The end of the block waits for no receiver."""
    stop = threading.Event()
    thread = threading.Thread(target=Notifier(path, stop=stop).watch, name="notices", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(0.2)
