"""Deciding in a browser: about what was shown, with the same rules and records as the commands."""

from __future__ import annotations

import json
import re
from typing import Any

import pandas as pd
import pytest

from comity.console.people import Role
from comity.privacy.loss import Approx
from comity.site.inbox import Inbox
from comity.site.service import SiteService
from comity.site.site_file import SiteFile
from tests.console.conftest import Browser, ConsoleUnderTest
from tests.support.sites import STUDY


def shown_form(page: Any) -> dict[str, str]:
    form = re.search(r'action="/studies/\w+/approve">(.*?)</form>', page.text, re.DOTALL)
    assert form is not None, page.text
    return dict(re.findall(r'name="(shown|dataset|runs)" value="([^"]*)"', form[1]))


def approve(browser: Browser, study: str, **more: str) -> Any:
    form = shown_form(browser.get(f"/studies/{study}"))
    return browser.post(f"/studies/{study}/approve", **{**form, "typed": study[:8], **more})


def decision(north: ConsoleUnderTest, study: str) -> Any:
    return Inbox(north.sites.home("north")).find(study).decision


def test_a_study_is_shown_and_approved_and_the_site_serves_it(north: ConsoleUnderTest) -> None:
    study = north.receive()
    browser = north.browser(Role.APPROVE)
    assert "readmission" in browser.get("/").text and "nobody has decided about it" in browser.get("/").text
    page = browser.get(f"/studies/{study}").text
    for words in (
        "left now",
        "left after this study",
        "What leaves north",
        "Who takes part",
        "Which columns are read?",
    ):
        assert words in page, words
    found = approve(browser, study)
    assert found.status_code == 303
    made = decision(north, study)
    assert (made.decision, made.dataset, made.runs, made.by) == ("approved", "patients", 1, "the approve person")
    assert SiteService(north.sites.site("north")).studies == (study,)
    assert "for patients, 1 run by the approve person" in browser.get("/").text
    lines = [json.loads(line) for line in north.log().splitlines()]
    (last,) = (one for one in lines if one["action"] == "approved a study")
    assert last["who"] == "the approve person" and last["about"].startswith(study[:12]) and last["outcome"] == "done"


@pytest.mark.parametrize("typed", ["", "0", "zzzzzzzz"])
def test_an_approval_needs_the_beginning_of_the_hash(north: ConsoleUnderTest, typed: str) -> None:
    study = north.receive()
    browser = north.browser(Role.APPROVE)
    assert approve(browser, study, typed=typed).status_code == 400
    assert approve(browser, study, typed=study[:7]).status_code == 400
    assert decision(north, study) is None


def test_a_reader_decides_nothing(north: ConsoleUnderTest) -> None:
    study = north.receive()
    page = north.browser(Role.APPROVE).get(f"/studies/{study}")
    reader = north.browser(Role.READ)
    assert "needs the role approve" in reader.get(f"/studies/{study}").text
    found = reader.post(f"/studies/{study}/approve", **shown_form(page), typed=study[:8])
    assert found.status_code == 403
    assert reader.post(f"/studies/{study}/refuse", why="no").status_code == 403
    assert decision(north, study) is None


def test_a_second_tab_does_not_approve_what_changed_meanwhile(north: ConsoleUnderTest) -> None:
    first, second = north.receive(), north.receive(epsilon=0.3, at="another")
    tab, other = north.browser(Role.APPROVE), north.browser(Role.ADMINISTER)
    form = shown_form(tab.get(f"/studies/{first}"))
    ledger = SiteFile.load(north.sites.site("north")).owner().ledger
    ledger.grant_more(Approx(0.5, 0), "more")
    found = tab.post(f"/studies/{first}/approve", **form, typed=first[:8])
    assert found.status_code == 409 and "something changed" in found.text and decision(north, first) is None
    again = shown_form(found)
    assert again["shown"] != form["shown"]
    assert tab.post(f"/studies/{first}/approve", **again, typed=first[:8]).status_code == 303
    # The digest of one study, dataset or number of runs is none for another.
    form = shown_form(tab.get(f"/studies/{second}"))
    assert tab.post(f"/studies/{second}/approve", **{**form, "runs": "2"}, typed=second[:8]).status_code == 409
    assert (
        tab.post(f"/studies/{second}/approve", **{**form, "shown": again["shown"]}, typed=second[:8]).status_code == 409
    )
    assert tab.post(f"/studies/{second}/approve", **{**form, "shown": ""}, typed=second[:8]).status_code == 409
    other.get(f"/studies/{second}")
    assert other.post(f"/studies/{second}/refuse", why="no legal basis").status_code == 303
    assert tab.post(f"/studies/{second}/approve", **form, typed=second[:8]).status_code == 409
    assert decision(north, second).decision == "refused"


def test_a_narrower_policy_is_seen_before_an_approval(north: ConsoleUnderTest) -> None:
    study = north.receive()
    browser = north.browser(Role.APPROVE)
    form = shown_form(browser.get(f"/studies/{study}"))
    path = north.sites.site("north")
    path.write_text(path.read_text().replace("epsilon_per_study = 1.0", "epsilon_per_study = 0.1"))
    found = browser.post(f"/studies/{study}/approve", **form, typed=study[:8])
    assert found.status_code == 403 and "epsilon_per_study" in found.text and decision(north, study) is None
    page = browser.get(f"/studies/{study}").text
    assert "Your terms or your budget exclude this study" in page and 'name="typed"' not in page


def test_files_that_were_changed_after_they_arrived_are_not_approved(north: ConsoleUnderTest) -> None:
    study = north.receive()
    browser = north.browser(Role.APPROVE)
    form = shown_form(browser.get(f"/studies/{study}"))
    path = north.sites.home("north") / "studies" / study / "study" / "study.toml"
    path.write_text(path.read_text().replace("epsilon = 0.9", "epsilon = 0.95"))
    found = browser.post(f"/studies/{study}/approve", **form, typed=study[:8])
    assert found.status_code == 403 and "were changed after it arrived" in found.text
    assert decision(north, study) is None


def test_warnings_about_records_are_shown_before_an_approval_counts(north: ConsoleUnderTest) -> None:
    study = north.receive()
    records = north.sites.home("north") / "patients.csv"
    frame = pd.read_csv(records)
    records.write_text(frame.assign(heart_rate=500).to_csv(index=False))
    browser = north.browser(Role.APPROVE)
    assert "<strong>Warning</strong>data.patients" not in browser.get(f"/studies/{study}").text
    found = approve(browser, study)
    assert (
        found.status_code == 409
        and "heart_rate" in found.text.partition("What it means for")[0].rpartition("<strong>Warning</strong>")[2]
        and decision(north, study) is None
    )
    assert browser.post(f"/studies/{study}/approve", **shown_form(found), typed=study[:8]).status_code == 303


def test_a_refusal_needs_a_reason_and_the_coordinator_reads_it(north: ConsoleUnderTest) -> None:
    study = north.receive()
    browser = north.browser(Role.APPROVE)
    browser.get(f"/studies/{study}")
    assert browser.post(f"/studies/{study}/refuse", why="  ").status_code == 400
    assert browser.post(f"/studies/{study}/refuse", why="x" * 501).status_code == 400
    assert decision(north, study) is None
    assert browser.post(f"/studies/{study}/refuse", why="no legal basis yet").status_code == 303
    assert decision(north, study).why == "no legal basis yet"
    assert "no legal basis yet" not in north.log()


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>"


def test_a_study_of_markup_and_escape_codes_is_shown_as_text(north: ConsoleUnderTest) -> None:
    about = f'purpose = "{HOSTILE}"\ncontact = "\\u001b[2Jgone \\u202eevil"'
    study = north.receive(text=STUDY.replace('protocol = "averaging"', f'protocol = "averaging"\n{about}'))
    # No such name is taken in; it is shown as text even if somebody writes it into the inbox.
    path = north.sites.home("north") / "studies" / study / "arrival.json"
    page = json.loads(path.read_text()) | {"name": '<b>bold</b>" onmouseover="alert(1)\u001b[2J'}
    path.write_text(json.dumps(page))
    browser = north.browser(Role.APPROVE)
    for address in ("/", f"/studies/{study}"):
        page = browser.get(address).text
        assert "<script" not in page and "<img" not in page and "<b>bold" not in page
        assert "\x1b" not in page and "\u202e" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_a_name_or_reason_of_markup_is_shown_as_text(north: ConsoleUnderTest) -> None:
    study = north.receive()
    north.people.use_link(north.people.make_link("<i>ada</i>", Role.ADMINISTER), "", "quite a long password")
    browser = north.browser()
    browser.sign_in("<i>ada</i>")
    browser.get(f"/studies/{study}")
    browser.post(f"/studies/{study}/refuse", why="<u>why</u> \x1b[31m")
    for path in ("/", f"/studies/{study}", "/people"):
        page = browser.get(path).text
        assert "<i>ada" not in page and "<u>" not in page and "\x1b" not in page


def test_differences_to_an_earlier_study_of_the_same_name_are_listed(north: ConsoleUnderTest) -> None:
    first = north.receive()
    second = north.receive(epsilon=0.7, at="another")
    page = north.browser(Role.READ).get(f"/studies/{second}").text
    table = page.partition("What differs from the earlier study")[2].partition("</table>")[0]
    assert "privacy.epsilon" in table and "0.9" in table and "0.7" in table and first[:12] in page
    assert "privacy.delta" not in table


@pytest.mark.parametrize(
    "path", ["/studies/%2e%2e", "/studies/%2e%2e%2fsite.toml", "/studies/" + "0" * 64, "/studies/abcd"]
)
def test_addresses_of_no_study_find_none(north: ConsoleUnderTest, path: str) -> None:
    found = north.browser(Role.READ).get(path)
    assert found.status_code in (303, 400, 404) and "pinned" not in found.text
