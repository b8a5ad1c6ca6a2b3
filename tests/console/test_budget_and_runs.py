"""Budget, runs and health of a site that has run a study, and attacks on their forms and downloads."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from comity.console.health_pages import HealthWatch, describe_policy
from comity.console.people import Role
from comity.console.site_view import SiteView
from comity.errors import ComityError, Refused
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from comity.site.health import Finding
from comity.site.status import list_runs
from tests.console.conftest import ConsoleUnderTest
from tests.support.sites import approve, connect_services, execute


@dataclass
class Ran:
    study: str
    under_test: ConsoleUnderTest

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.under_test.sites.home("north") / "north.ledger")


@pytest.fixture
def ran(north: ConsoleUnderTest) -> Ran:
    """A study that both owners approved and that ran to its end."""
    sites = north.sites
    study, services = sites.study(), sites.services()
    for service in services.values():
        approve(service, service.take_in(sites.pack(study)))
    execute(connect_services(study, services, sites.coordinator))
    return Ran(study.hash, north)


def begin_second_run(ran: Ran) -> None:
    """An open run at north, as after a coordinator that stopped."""
    ledger = ran.ledger
    from comity.privacy.ledger import Draw
    from comity.privacy.unit import Neighbours, Unit

    draws = [Draw("gradient", 0, Approx(0.1, 1e-7), "gaussian", 1)]
    terms: dict[str, Any] = {"unit": Unit.RECORD, "neighbours": Neighbours.REPLACE}
    try:
        ledger.reserve(study="readmission", run=f"{ran.study[:32]}/run-2", draws=draws, **terms)
    except ComityError:
        from comity.privacy.loss import GDP

        draws = [Draw("gradient", 0, GDP(0.001), "gaussian", 1)]
        ledger.reserve(study="readmission", run=f"{ran.study[:32]}/run-2", draws=draws, **terms)


# Budget.


def test_the_budget_shows_what_was_spent_by_which_study(ran: Ran) -> None:
    page = ran.under_test.browser(Role.READ).get("/budget").text
    assert "the chain holds" in page and "granted" in page and "left" in page
    assert re.search(r"readmission.*?run-1.*?closed.*?0\.79", page, re.DOTALL)
    assert "Write off" not in page


def test_a_chain_that_was_edited_is_refused_on_the_page(ran: Ran) -> None:
    browser = ran.under_test.browser(Role.READ)
    assert browser.get("/budget").status_code == 200
    path = ran.under_test.sites.home("north") / "north.ledger"
    with sqlite3.connect(path) as connection:
        for (name,) in connection.execute("select name from sqlite_master where type = 'trigger'").fetchall():
            connection.execute(f"drop trigger {name}")
        last = connection.execute("select max(seq) from entries").fetchone()[0]
        connection.execute("update entries set head = ? where seq = ?", ("0" * 64, last))
    found = browser.get("/budget")
    assert found.status_code == 403 and "the chain holds" not in found.text


def test_a_write_off_needs_an_administrator_a_reason_and_a_confirmation(ran: Ran) -> None:
    before = ran.ledger.head()
    form = {"epsilon": "0.2", "delta": "0", "why": "restored", "confirm": "for good"}
    approver = ran.under_test.browser(Role.APPROVE)
    assert approver.post("/budget/write-off", **form).status_code == 403
    admin = ran.under_test.browser(Role.ADMINISTER)
    assert "Counts a loss that this ledger does not show" in admin.get("/budget").text
    for wrong in ({"confirm": "yes"}, {"why": ""}, {"epsilon": ""}, {"epsilon": "-1"}, {"epsilon": "nan"}):
        assert admin.post("/budget/write-off", **{**form, **wrong}).status_code == 400, wrong
    assert ran.ledger.head() == before
    assert admin.post("/budget/write-off", **form).status_code == 303
    last = ran.ledger.entries()[-1]
    assert last.kind == "write-off" and last.note == "restored (by the administer person)"
    admin.get("/budget")
    assert admin.post("/budget/write-off", **{**form, "epsilon": "", "everything": "yes"}).status_code == 303
    assert ran.ledger.summary()[0].left == 0


def test_a_run_is_abandoned_by_an_administrator_who_confirms(ran: Ran) -> None:
    begin_second_run(ran)
    key = f"{ran.study[:32]}/run-2"
    approver = ran.under_test.browser(Role.APPROVE)
    assert approver.post("/budget/abandon", run=key, confirm="for good").status_code == 403
    admin = ran.under_test.browser(Role.ADMINISTER)
    assert "run run-2" in admin.get("/budget").text
    assert admin.post("/budget/abandon", run=key, confirm="no").status_code == 400
    assert [one.state for one in list_runs(ran.ledger) if one.run == "run-2"] == ["open"]
    assert admin.post("/budget/abandon", run=key, confirm="for good").status_code == 303
    assert [one.state for one in list_runs(ran.ledger) if one.run == "run-2"] == ["abandoned"]


# Runs.


def run_address(ran: Ran) -> str:
    page = ran.under_test.browser(Role.READ).get("/runs").text
    found = re.search(r'href="(/runs/[0-9a-f]+)"', page)
    assert found is not None, page
    return found[1]


def test_a_finished_run_shows_steps_score_result_and_files(ran: Ran) -> None:
    browser, address = ran.under_test.browser(Role.READ), run_address(ran)
    page = browser.get(address).text
    assert (
        "reserving the budget" in page
        and "round 3 of 5: a step towards a better model" in page
        and "handing out the result" in page
    )
    assert "on your records" in page and "received.json" in page
    result = browser.get(f"{address}/result")
    assert result.status_code == 200 and "readmission" in result.text and "style=" not in result.text
    dossier = browser.get(f"{address}/dossier")
    assert dossier.status_code == 200 and "dossier" in dossier.text and "style=" not in dossier.text
    found = browser.get(f"{address}/files/received.json")
    home = ran.under_test.sites.home("north")
    kept = home / "results" / f"{ran.study[:12]}-run-1" / "received.json"
    assert found.content == kept.read_bytes()
    assert found.headers["content-disposition"].startswith("attachment")
    assert found.headers["content-type"] == "application/octet-stream"


TRICKS = [
    "../../site.toml",
    "..%2f..%2fsite.toml",
    "%2e%2e/%2e%2e/north.keys",
    "....//north.keys",
    "/etc/passwd",
    "%2fetc%2fpasswd",
    "signed.json",
    "received.json%00.png",
    "model%2f..%2freceived.json",
    "model//..//received.json",
    "..\\..\\north.keys",
    "",
]


def test_downloads_lead_nowhere_else(ran: Ran) -> None:
    browser, address = ran.under_test.browser(Role.READ), run_address(ran)
    secret = (ran.under_test.sites.home("north") / "north.keys").read_bytes()
    for trick in TRICKS:
        found = browser.get(f"{address}/files/{trick}")
        assert found.status_code in (303, 400, 404), trick
        for kept in (secret[:40], b"[policy]", b"root:"):
            assert kept not in found.content, trick


def test_a_link_or_a_changed_file_in_the_folder_is_not_sent(ran: Ran) -> None:
    browser, address = ran.under_test.browser(Role.READ), run_address(ran)
    home = ran.under_test.sites.home("north")
    folder: Path = home / "results" / f"{ran.study[:12]}-run-1"
    (folder / "stolen").symlink_to(home / "north.keys")
    assert browser.get(f"{address}/files/stolen").status_code == 400
    page = folder / "received.json"
    page.write_text(page.read_text() + " ")
    assert browser.get(f"{address}/files/received.json").status_code == 403
    assert "was altered after the result was signed" in browser.get(address).text


def test_refusals_are_shown_with_their_reasons(ran: Ran) -> None:
    home = ran.under_test.sites.home("north")
    from comity.site.status import Refusals

    Refusals(home).record(Refused("refused: <b>too</b> much\x1b[2J", code="policy"), study="ab" * 32, run="run-9")
    page = ran.under_test.browser(Role.READ).get("/runs").text
    assert "&lt;b&gt;too&lt;/b&gt; much" in page and "<b>too" not in page and "\x1b" not in page


# Health.


def test_health_shows_findings_terms_and_decisions(ran: Ran) -> None:
    browser = ran.under_test.browser(Role.APPROVE)
    browser.get(f"/studies/{ran.study}")
    browser.post(f"/studies/{ran.study}/refuse", why="the contract ended")
    page = browser.get("/health").text
    assert "The first check is running" in page or "Checked" in page
    assert "epsilon_per_study" in page and "the most that all runs of one study may cost" in page
    assert "1 decision, each signed" in page and "the contract ended" in page and "the approve person" in page
    assert "patients.csv" not in page.partition("Your terms")[2]


def test_a_check_runs_beside_the_page_and_its_failure_is_a_finding(north: ConsoleUnderTest) -> None:
    def broken() -> tuple[Finding, ...]:
        raise ValueError("the value 37.5 of a record")

    watch = HealthWatch(broken)
    assert watch.look() is None
    watch.wait()
    found = watch.look()
    assert found is not None and found.findings[0].state == "failure" and "37.5" not in found.findings[0].sentence
    real = HealthWatch.of(SiteView(north.sites.site("north")))
    real.look()
    real.wait()
    checked = real.look()
    assert checked is not None and {"keys", "disk", "ledger", "versions", "clock"} <= {
        one.name for one in checked.findings
    }


def test_of_the_site_file_only_the_terms_are_shown() -> None:
    tables = {"policy": {"protocols": ["averaging"]}, "data": {"patients": {"url": "postgres://user:secret@host"}}}
    assert describe_policy(tables) == [("protocols", '["averaging"]', "methods that may run")]


def test_a_record_of_decisions_that_was_edited_is_said(ran: Ran) -> None:
    browser = ran.under_test.browser(Role.APPROVE)
    browser.get(f"/studies/{ran.study}")
    browser.post(f"/studies/{ran.study}/refuse", why="the contract ended")
    path = ran.under_test.sites.home("north") / "studies" / "decisions.jsonl"
    path.write_text(path.read_text().replace("the contract ended", "never mind"))
    page = browser.get("/health").text
    assert "is not as this site signed it" in page and "never mind" not in page.partition("Decisions")[2]


def test_no_page_or_log_holds_a_value_of_a_record(ran: Ran) -> None:
    home = ran.under_test.sites.home("north")
    private = set(pd.read_csv(home / "patients.csv")["patient"])
    browser, address = ran.under_test.browser(Role.ADMINISTER), run_address(ran)
    paths = ["/", f"/studies/{ran.study}", "/budget", "/runs", address, "/health", "/people"]
    texts = [browser.get(path).text for path in paths] + [ran.under_test.log()]
    assert private, "the control: there are such values"
    assert not [cell for cell in private if any(cell in text for text in texts)]
