"""Every page of a console with 50 studies and 10,000 entries in the ledger, and an ask beside a console that reads."""

from __future__ import annotations

import re
import statistics
import threading
import time
from typing import Any

import pytest

from comity.console.people import Role
from comity.console.site_console import make_site_console
from comity.privacy.ledger import Draw, Ledger
from comity.privacy.loss import GDP
from comity.privacy.unit import Neighbours, Unit
from comity.site.service import SiteService
from tests.console.conftest import ConsoleUnderTest
from tests.support.sites import approve, connect_services, execute

pytestmark = pytest.mark.long

STUDIES, ENTRIES = 50, 10_000
MAX_SECONDS = 0.3
_DRAWS = 200


def fill(north: ConsoleUnderTest) -> str:
    """50 studies, one of which ran, and 10,000 entries; the hash of a study that waits."""
    sites = north.sites
    study, services = sites.study(epsilon=0.5), sites.services()
    for service in services.values():
        approve(service, service.take_in(sites.pack(study)))
    execute(connect_services(study, services, sites.coordinator))
    north_service = SiteService(sites.site("north"))
    last = ""
    for number in range(1, STUDIES):
        made = sites.study(epsilon=0.5 + number / 1000, at=f"study-{number}")
        last = north_service.take_in(sites.pack(made)).study
        if number < STUDIES - 5:
            north_service.inbox.refuse(last, "not this one")
    ledger = Ledger(sites.home("north") / "north.ledger")
    terms: dict[str, Any] = {"unit": Unit.RECORD, "neighbours": Neighbours.REPLACE}
    number = 0
    while len(ledger.entries()) < ENTRIES:
        draws = [Draw("gradient", index, GDP("1e-9"), "gaussian", 1) for index in range(_DRAWS)]
        run = f"{'0' * 32}/run-{number}"
        with ledger.transaction() as transaction:
            transaction.reserve(study=f"study {number}", run=run, draws=draws, **terms)
            for index in range(_DRAWS):
                transaction.draw(run=run, release="gradient", index=index, step=f"gradient[{index}]")
            transaction.close(run)
        number += 1
    return last


def test_every_page_takes_less_than_300_ms(north: ConsoleUnderTest) -> None:
    study = fill(north)
    # A console that starts now, as after the site has worked for years.
    _, north.app = make_site_console(
        north.sites.site("north"),
        north.console.address,
        people=north.people,
        sessions=north.console.sessions,
        limits=north.console.limits,
    )
    browser = north.browser(Role.ADMINISTER)
    runs = re.findall(r'href="(/runs/[0-9a-f]+)"', browser.get("/runs").text)
    ended = next(one for one in runs if "received.json" in browser.get(one).text)
    paths = ["/", f"/studies/{study}", "/budget", "/runs", ended, f"{ended}/result", f"{ended}/dossier", "/health"]
    paths += ["/people", f"{ended}/files/received.json", "/static/console.css", "/sign-in"]
    taken = {}
    for path in paths:
        times = []
        for _ in range(6):
            before = time.perf_counter()
            assert browser.get(path).status_code in (200, 303), path
            times.append(time.perf_counter() - before)
        taken[path] = statistics.median(times)
        print(f"{path[:24]:<26}{times[0] * 1e3:8.0f} ms first{taken[path] * 1e3:8.0f} ms median")
    assert max(taken.values()) < MAX_SECONDS, taken


def test_readers_do_not_delay_a_commit(north: ConsoleUnderTest) -> None:
    """Commits of the site while four people load pages without a pause."""
    study = fill(north)
    ledger = Ledger(north.sites.home("north") / "north.ledger")
    terms: dict[str, Any] = {"unit": Unit.RECORD, "neighbours": Neighbours.REPLACE}

    def commit_times(name: str) -> list[float]:
        times = []
        for number in range(30):
            draws = [Draw("gradient", 0, GDP("1e-9"), "gaussian", 1)]
            before = time.perf_counter()
            ledger.reserve(study="timed", run=f"{'1' * 32}/{name}-{number}", draws=draws, **terms)
            times.append(time.perf_counter() - before)
        return times

    alone = commit_times("alone")
    stop = threading.Event()
    browsers = [north.browser(role) for role in (Role.READ, Role.APPROVE)]

    def read(browser: Any) -> None:
        while not stop.is_set():
            for path in ("/budget", f"/studies/{study}", "/runs"):
                browser.get(path)

    readers = [threading.Thread(target=read, args=(one,), daemon=True) for one in browsers]
    for one in readers:
        one.start()
    beside = commit_times("beside")
    stop.set()
    for one in readers:
        one.join()
    print(
        f"commit: median {statistics.median(alone) * 1e3:.1f} ms alone, {statistics.median(beside) * 1e3:.1f} ms beside"
    )
    # One process here, so readers also take turns with the interpreter; a lock that is held would be seconds.
    assert max(beside) < 1.0
