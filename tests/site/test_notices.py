"""Notices: told once, across restarts; receivers that hang, fail, redirect or listen; nothing private in them."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from comity.errors import BadInput, StudyError
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from comity.site import notices
from comity.site.inbox import Arrival
from comity.site.notices import MAX_ATTEMPTS, NAME, NoticesTable, Notifier, find_notices, post_webhook, send_notices
from comity.site.site_file import SiteFile
from tests.support.sites import Sites, approve, connect_services, execute

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


class Receiver(ThreadingHTTPServer):
    """A webhook on loopback that answers with `status` and keeps what it received."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.bodies: list[bytes] = []
        self.status, self.delay, self.drip = 204, 0.0, False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook?token=t0ken"

    @property
    def events(self) -> list[str]:
        return [document["event"] for _, document in self.received]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append(body)
        self.server.received.append((dict(self.headers), json.loads(body)))
        time.sleep(self.server.delay)
        while self.server.drip:
            self.wfile.write(b"H")
            self.wfile.flush()
            time.sleep(0.05)
        self.send_response(self.server.status)
        if self.server.status in (301, 302, 307):
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/elsewhere")
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield server
        server.drip = False
        server.shutdown()


def configure(sites: Sites, lines: str, **more: Any) -> Path:
    sites.write("north", **more)
    path = sites.site("north")
    path.write_text(path.read_text() + f"\n[notices]\n{lines}\n")
    return path


def webhook(receiver: Receiver, more: str = "") -> str:
    return f'webhook = "{receiver.address}"\n{more}'


@contextmanager
def clock_at(moments: list[datetime]) -> Iterator[Any]:
    yield lambda: moments[-1]


def test_each_event_of_a_run_is_told_once_and_not_again_after_a_restart(sites: Sites, receiver: Receiver) -> None:
    path = configure(sites, webhook(receiver, "budget_below = 0.95"))
    services, study = sites.services(), sites.study()
    notifier = Notifier(path)
    assert notifier.look() == 0
    for service in services.values():
        approve(service, service.take_in(sites.pack(study)))
    assert notifier.look() == 1 and receiver.events == ["study-arrived"]
    assert notifier.look() == 0
    execute(connect_services(study, services, sites.coordinator))
    assert Notifier(path).look() == 2 and receiver.events[1:] == ["run-ended", "budget-below"]
    assert Notifier(path).look() == 0 and notifier.look() == 0
    arrived, ended, below = (document for _, document in receiver.received)
    assert arrived == {
        "event": "study-arrived", "id": arrived["id"], "party": "north", "study": study.hash, "name": "readmission",
        "time": arrived["time"],
    }  # fmt: skip
    assert (ended["run"], ended["state"], ended["dataset"]) == ("run-1", "closed", "patients")
    assert ended["study"] == study.hash and ended["name"] == "readmission"
    assert set(below) == {"event", "id", "party", "dataset", "below", "time"} and below["below"] == 0.95
    assert len({document["id"] for _, document in receiver.received}) == 3
    assert (sites.home("north") / NAME).stat().st_mode & 0o077 == 0


def test_what_ended_before_notices_were_turned_on_is_not_told_and_what_waits_is(
    sites: Sites, receiver: Receiver
) -> None:
    services = sites.services()
    study, second = sites.study(), sites.study(epsilon=0.5, at="second")
    for service in services.values():
        approve(service, service.take_in(sites.pack(study)))
    execute(connect_services(study, services, sites.coordinator))
    services["north"].take_in(sites.pack(second))
    path = configure(sites, webhook(receiver))
    assert Notifier(path).look() == 1
    assert receiver.received[0][1]["study"] == second.hash


def test_a_budget_that_was_raised_is_told_again_when_it_falls(sites: Sites, receiver: Receiver) -> None:
    path = configure(sites, webhook(receiver, 'events = ["budget-below"]\nbudget_below = 0.9'))
    ledger = Ledger(SiteFile.load(path).ledger)
    told = []
    for spent, granted in ((2.5, 0.0), (0.0, 100.0), (60.0, 0.0)):
        if granted:
            ledger.grant_more(Approx(granted, 1e-5), "more")
        else:
            ledger.write_off(Approx(spent, 1e-5), "a loss")
        told.append((Notifier(path).look(), Notifier(path).look()))
    assert told == [(1, 0), (0, 0), (1, 0)]


def test_a_command_reads_the_notice_without_a_shell_and_without_secrets_of_the_environment(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
    script = "import json,os,sys; json.dump([sys.argv[1:], sys.stdin.read(), dict(os.environ)], open('told','w'))"
    path = configure(sites, f'command = ["{sys.executable}", "-c", "{script}", "$(id); `id`"]')
    sites.services()["north"].take_in(sites.pack(sites.study()))
    assert Notifier(path).look() == 1
    words, body, environment = json.loads((sites.home("north") / "told").read_text())
    assert words == ["$(id); `id`"] and json.loads(body)["event"] == "study-arrived"
    assert "DATABASE_PASSWORD" not in environment


def test_a_hostile_name_is_one_escaped_line(sites: Sites, receiver: Receiver) -> None:
    path = configure(sites, webhook(receiver))
    arrival = sites.services()["north"].take_in(sites.pack(sites.study()))
    # A study with such a name is refused; the file of the inbox may still have one.
    page = sites.home("north") / "studies" / arrival.study / "arrival.json"
    page.write_text(page.read_text().replace('"readmission"', '"\\u001b[2J<b>\\u202eevil\\nline"'))
    assert Notifier(path).look() == 1
    name = receiver.received[0][1]["name"]
    assert name.isascii() and name.isprintable() and "\\u001b" in name and "\\u202e" in name
    long = find_notices(
        "north",
        NoticesTable(webhook="https://example.org"),
        arrivals=[Arrival("ab" * 32, "n" * 10_000, "averaging", "coordinator", "", False, None)],
        runs=[],
        accounts=[],
        ends=None,
        now=NOW,
    )
    assert len(long[0].name) == 200


def test_a_command_that_hangs_is_killed_with_what_it_started_and_tried_a_bounded_number_of_times(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notices, "TIMEOUT_SECONDS", 0.4)
    # The child would write a file after the timeout, if it outlived it.
    path = configure(sites, 'command = ["sh", "-c", "echo x >> tried; (sleep 1; touch survived) & sleep 60"]')
    sites.services()["north"].take_in(sites.pack(sites.study()))
    moments = [NOW]
    began = time.monotonic()
    with clock_at(moments) as clock, caplog.at_level(logging.WARNING, "comity.site"):
        for _ in range(6):
            # Each time another process: attempts are remembered.
            assert Notifier(path, clock).look() == 0
            moments.append(moments[-1] + timedelta(hours=1))
    assert time.monotonic() - began < 6
    home = sites.home("north")
    assert (home / "tried").read_text() == "x\n" * MAX_ATTEMPTS
    assert sum("was killed" in line for line in caplog.messages) == MAX_ATTEMPTS
    assert "it is not tried again" in caplog.messages[-1]
    time.sleep(1.1)
    assert not (home / "survived").exists()


def test_a_failure_is_tried_again_after_a_while_and_then_told_once(
    sites: Sites, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    path = configure(sites, webhook(receiver))
    sites.services()["north"].take_in(sites.pack(sites.study()))
    receiver.status = 500
    moments = [NOW]
    with clock_at(moments) as clock, caplog.at_level(logging.WARNING, "comity.site"):
        assert Notifier(path, clock).look() == 0
        receiver.status = 200
        assert Notifier(path, clock).look() == 0, "not before its time"
        moments.append(NOW + timedelta(seconds=31))
        assert Notifier(path, clock).look() == 1
        moments.append(NOW + timedelta(days=2))
        assert Notifier(path, clock).look() == 0
    first, second = (document["id"] for _, document in receiver.received)
    assert first == second, "a receiver can drop what it received before"
    assert "status 500" in caplog.text and "t0ken" not in caplog.text


def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    receiver.status = 307
    assert "status 307" in post_webhook(receiver.address, b'{"event": "x"}', None, NOW)
    assert len(receiver.received) == 1


def test_a_webhook_that_sends_a_byte_now_and_then_is_cut_off(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "TIMEOUT_SECONDS", 0.3)
    receiver.drip = True
    began = time.monotonic()
    assert "did not answer" in post_webhook(receiver.address, b'{"event": "x"}', None, NOW)
    assert time.monotonic() - began < 3


def test_a_signature_covers_time_and_body(sites: Sites, receiver: Receiver) -> None:
    home = sites.home("north")
    secret = home / "hook.secret"
    secret.write_bytes(b"0123456789abcdef0123\n")
    secret.chmod(0o600)
    path = configure(sites, webhook(receiver, 'secret = "hook.secret"'))
    sites.services()["north"].take_in(sites.pack(sites.study()))
    assert Notifier(path).look() == 1
    headers, _ = receiver.received[0]
    signed = headers["Comity-Time"].encode() + b"." + receiver.bodies[0]
    mac = hmac.new(b"0123456789abcdef0123", signed, hashlib.sha256).hexdigest()
    assert headers["Comity-Signature"] == f"sha256={mac}"


@pytest.mark.parametrize(("content", "mode"), [(b"short", 0o600), (b"0123456789abcdef0123", 0o644), (None, 0)])
def test_a_secret_that_protects_nothing_is_not_used(
    sites: Sites, receiver: Receiver, content: bytes | None, mode: int
) -> None:
    if content is not None:
        (sites.home("north") / "hook.secret").write_bytes(content)
        (sites.home("north") / "hook.secret").chmod(mode)
    path = configure(sites, webhook(receiver, 'secret = "hook.secret"'))
    sites.services()["north"].take_in(sites.pack(sites.study()))
    assert Notifier(path).look() == 0 and not receiver.received


@pytest.mark.parametrize(
    "lines",
    [
        "",
        "command = []",
        'command = [" "]',
        'webhook = "http://example.org/hook"',
        'webhook = "http://127.0.0.1.example.org/hook"',
        'webhook = "http://localhost@example.org/hook"',
        'webhook = "ftp://127.0.0.1/hook"',
        'webhook = "https:///hook"',
        'webhook = "https://example.org:99999/hook"',
        'webhook = "https://example.org/a\\r\\nHost: b"',
        'command = ["true"]\nsecret = "s"',
        'command = ["true"]\nevents = ["record-read"]',
        'command = ["true"]\nbudget_below = 0',
        'command = "true; id"',
    ],
)
def test_a_table_that_sends_nothing_or_to_others_is_refused(sites: Sites, lines: str) -> None:
    with pytest.raises(StudyError, match=r"site.toml.*notices"):
        SiteFile.load(configure(sites, lines))


@pytest.mark.parametrize("address", ["https://example.org/hook", "http://[::1]:8080", "http://localhost/x"])
def test_https_and_this_machine_are_allowed(sites: Sites, address: str) -> None:
    found = SiteFile.load(configure(sites, f'webhook = "{address}"')).notices
    assert found is not None and found.webhook == address and set(found.events) == set(notices.EVENTS)


def test_the_end_of_a_membership_is_told_thirty_days_before() -> None:
    def told(ends: datetime) -> list[str]:
        table = NoticesTable(command=("true",))
        return [one.ends for one in find_notices("n", table, arrivals=[], runs=[], accounts=[], ends=ends, now=NOW)]

    assert told(NOW + timedelta(days=31)) == []
    assert told(NOW + timedelta(days=29)) == ["2026-12-17"]
    assert told(NOW - timedelta(days=1)) == ["2026-11-17"]


def test_an_ask_and_the_end_of_the_process_wait_for_no_receiver(sites: Sites, receiver: Receiver) -> None:
    receiver.delay = 5.0
    path = configure(sites, webhook(receiver))
    services, study = sites.services(), sites.study()
    for service in services.values():
        approve(service, service.take_in(sites.pack(study)))
    services["north"].take_in(sites.pack(sites.study(epsilon=0.5, at="second")))
    began = time.monotonic()
    with send_notices(path):
        while not receiver.received:
            time.sleep(0.01)
            assert time.monotonic() - began < 4
        execute(connect_services(study, services, sites.coordinator))
        assert len(receiver.received) == 1, "the first notice still waits for its receiver"
    assert time.monotonic() - began < 5


def test_a_site_that_can_t_be_read_is_said_once_and_watched_on(
    sites: Sites, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notices, "POLL_SECONDS", 0.02)
    path = configure(sites, webhook(receiver))
    sites.services()["north"].take_in(sites.pack(sites.study()))
    good = path.read_text()
    path.write_text("party = ")
    with caplog.at_level(logging.WARNING, "comity.site"), send_notices(path):
        time.sleep(0.3)
        path.write_text(good)
        deadline = time.monotonic() + 10
        while not receiver.received and time.monotonic() < deadline:
            time.sleep(0.02)
    assert receiver.events == ["study-arrived"]
    assert sum("notices can't be sent" in line for line in caplog.messages) == 1


def test_a_damaged_memory_tells_what_waits_and_nothing_of_the_past(sites: Sites, receiver: Receiver) -> None:
    path = configure(sites, webhook(receiver))
    services, study = sites.services(), sites.study()
    assert Notifier(path).look() == 0
    for service in services.values():
        approve(service, service.take_in(sites.pack(study)))
    services["north"].take_in(sites.pack(sites.study(epsilon=0.5, at="second")))
    assert Notifier(path).look() == 2
    (sites.home("north") / NAME).write_text("{")
    assert Notifier(path).look() == 1 and receiver.events == ["study-arrived"] * 3


def test_two_processes_do_not_send_the_same(sites: Sites, receiver: Receiver) -> None:
    path = configure(sites, webhook(receiver))
    sites.services()["north"].take_in(sites.pack(sites.study()))
    receiver.delay = 0.5
    first = threading.Thread(target=Notifier(path).look)
    first.start()
    while not receiver.received:
        time.sleep(0.01)
    with pytest.raises(BadInput, match="another process sends"):
        Notifier(path).look()
    first.join()
    assert Notifier(path).look() == 0 and len(receiver.received) == 1


def test_a_site_file_is_read_again_when_it_changes_and_not_otherwise(
    sites: Sites, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a hundred sites that share a process, each file pins the keys of all others."""
    read: list[Path] = []
    load = SiteFile.load

    def counted(path: str | Path) -> SiteFile:
        read.append(Path(path))
        return load(path)

    monkeypatch.setattr(SiteFile, "load", counted)
    path = sites.site("north")
    notifier = Notifier(path)
    assert [notifier.look() for _ in range(3)] == [0, 0, 0] and len(read) == 1
    path.write_text(path.read_text("utf-8") + "\n", "utf-8")
    assert notifier.look() == 0 and len(read) == 2
    path.unlink()
    with pytest.raises(StudyError, match="no such site file"):
        notifier.look()
