"""Unusable files about a study are reported in one sentence, and the site serves nothing because of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from comity.errors import StudyError
from comity.site.health import check_site
from comity.site.inbox import Inbox
from comity.site.service import SiteService
from tests.support.sites import Sites, approve

MALFORMED: dict[str, tuple[str, Any, str]] = {
    "a number as a text": ("runs", "3", "runs must be a whole number, found '3'"),
    "a truth value as a number": ("runs", True, "runs must be a whole number, found True"),
    "a fraction": ("runs", 1.5, "runs must be a whole number"),
    "nothing as a number": ("runs", None, "runs must be a whole number, found None"),
    "no run": ("runs", 0, "runs must be 1 or more, found 0"),
    "fewer than none": ("runs", -1, "runs must be 1 or more"),
    "another decision": ("decision", "granted", '"approved" or "refused", found \'granted\''),
    "a list as a decision": ("decision", ["approved"], "decision must be a text"),
    "a number as a dataset": ("dataset", 3, "dataset must be a text, found 3"),
    "no time": ("when", "yesterday", "when must be a time with its UTC offset"),
    "a time without its offset": ("when", "2026-11-17T12:00:00", "when must be a time with its UTC offset"),
    "a number as a person": ("by", 3, "by must be a text, found 3"),
    "a further key": ("until", "2027", "expected the keys decision, when, dataset, runs, why"),
}


@pytest.fixture
def decided(sites: Sites) -> tuple[SiteService, Path]:
    service = SiteService(sites.site("north"))
    arrival = service.take_in(sites.pack(sites.study()))
    approve(service, arrival)
    service.refresh()
    assert service.studies == (arrival.study,)
    return service, service.inbox.folder / arrival.study / "decision.json"


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_decision_is_one_sentence_and_no_approval(decided: tuple[SiteService, Path], case: str) -> None:
    service, path = decided
    key, value, said = MALFORMED[case]
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(StudyError) as error:
        Inbox(service.site.home).arrivals()
    assert str(path) in str(error.value) and said in str(error.value) and "restore the file" in str(error.value)
    assert "\n" not in str(error.value)
    service.refresh()
    assert service.studies == ()


def test_a_decision_keeps_the_person_who_made_it(decided: tuple[SiteService, Path]) -> None:
    service, path = decided
    service.inbox.approve(path.parent.name, dataset="patients", runs=2, by="the data office")
    (arrival,) = Inbox(service.site.home).arrivals()
    assert arrival.decision is not None and (arrival.decision.by, arrival.decision.runs) == ("the data office", 2)
    service.inbox.refuse(path.parent.name, "too early", "the board")
    (arrival,) = Inbox(service.site.home).arrivals()
    assert arrival.decision is not None and (arrival.decision.by, arrival.decision.why) == ("the board", "too early")


def test_a_decision_of_an_earlier_release_names_nobody(decided: tuple[SiteService, Path]) -> None:
    service, path = decided
    page = json.loads(path.read_text())
    assert page.pop("by") == ""
    path.write_text(json.dumps(page))
    (arrival,) = Inbox(service.site.home).arrivals()
    assert arrival.decision is not None and arrival.decision.by == "" and arrival.approval is not None


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '"approved"', "[" * 100_000, "{}", '{"runs": 1e999}', "\ud800"])
def test_what_is_no_decision_at_all(decided: tuple[SiteService, Path], text: str) -> None:
    service, path = decided
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(StudyError, match=r"decision\.json"):
        Inbox(service.site.home).arrivals()


@pytest.mark.parametrize(("key", "value"), [("arrived", "soon"), ("arrived", 3), ("name", None), ("submitter", {})])
def test_what_is_kept_of_an_arrival_is_checked_too(decided: tuple[SiteService, Path], key: str, value: Any) -> None:
    service, path = decided
    page = path.with_name("arrival.json")
    page.write_text(json.dumps({**json.loads(page.read_text()), key: value}))
    with pytest.raises(StudyError, match=f"{key} must be"):
        Inbox(service.site.home).arrivals()


def test_a_doctor_names_it(decided: tuple[SiteService, Path], sites: Sites) -> None:
    _, path = decided
    path.write_text(path.read_text().replace('"runs": 1', '"runs": "1"'))
    found = [one for one in check_site(sites.site("north")) if one.state == "failure"]
    assert any("runs must be a whole number" in one.sentence for one in found)
