"""Signing in: links and passwords that can't be guessed, reused or fixed, sessions that end, and roles that hold."""

from __future__ import annotations

import json
import re
import stat
from typing import Any

import pytest

from comity.console.passwords import Cost, hash_password, verify_password
from comity.console.people import LINK_SECONDS, Role
from comity.console.rate_limits import IN_ALL, PER_NAME, WINDOW_SECONDS
from comity.console.sessions import IDLE_SECONDS, LIFETIME_SECONDS
from comity.console.site_console import site_pages
from comity.console.site_view import SiteView
from comity.errors import BadInput
from tests.console.conftest import CHEAP, PASSWORD, ConsoleUnderTest

COOKIE = "comity-8750"


def open_link(north: ConsoleUnderTest, secret: str, **form: Any) -> Any:
    browser = north.browser()
    found = browser.get(f"/link/{secret}")
    if found.status_code != 200:
        return found
    return browser.post("/link", secret=secret, **{"name": "ada", "password": PASSWORD, "again": PASSWORD, **form})


# Links.


def test_a_link_makes_a_person_once_and_signs_in(north: ConsoleUnderTest) -> None:
    secret = north.people.make_link("", Role.ADMINISTER)
    assert open_link(north, secret).status_code == 303
    assert north.people.all()["ada"].rank is Role.ADMINISTER
    again = open_link(north, secret, name="eve")
    assert again.status_code == 403 and "used or has expired" in again.text
    assert "eve" not in north.people.all()
    assert north.browser().sign_in("ada").status_code == 303


def test_a_link_that_was_looked_at_still_works_and_an_expired_one_does_not(north: ConsoleUnderTest) -> None:
    secret = north.people.make_link("ada", Role.READ)
    for _ in range(3):
        assert north.browser().get(f"/link/{secret}").status_code == 200
    north.clock.now += LINK_SECONDS + 1
    assert open_link(north, secret).status_code == 403
    assert north.people.all() == {}


def test_a_link_is_used_by_one_of_two_who_have_it_open(north: ConsoleUnderTest) -> None:
    secret = north.people.make_link("ada", Role.READ)
    first, second = north.browser(), north.browser()
    for one in (first, second):
        one.get(f"/link/{secret}")
    assert first.post("/link", secret=secret, password=PASSWORD, again=PASSWORD).status_code == 303
    assert second.post("/link", secret=secret, password="x" * 12, again="x" * 12).status_code == 403
    assert north.people.check("ada", PASSWORD) is not None


def test_a_link_without_a_name_takes_over_nobody(north: ConsoleUnderTest) -> None:
    open_link(north, north.people.make_link("", Role.ADMINISTER))
    found = open_link(north, north.people.make_link("", Role.READ), password="z" * 14, again="z" * 14)
    assert found.status_code == 400 and "choose another name" in found.text
    assert north.people.all()["ada"].rank is Role.ADMINISTER
    assert north.people.check("ada", PASSWORD) is not None


def test_guessed_links_are_refused_after_a_few(north: ConsoleUnderTest) -> None:
    real = north.people.make_link("ada", Role.ADMINISTER)
    statuses = [north.browser().get(f"/link/guess-{number}").status_code for number in range(PER_NAME + 3)]
    assert statuses == [403] * PER_NAME + [429] * 3
    assert north.browser().get(f"/link/{real}").status_code == 429
    north.clock.now += WINDOW_SECONDS + 1
    real = north.people.make_link("ada", Role.ADMINISTER)
    assert north.browser().get(f"/link/{real}").status_code == 200


def test_files_hold_neither_links_nor_passwords_and_are_private(north: ConsoleUnderTest) -> None:
    secret = north.people.make_link("ada", Role.READ)
    open_link(north, north.people.make_link("", Role.ADMINISTER), name="bea")
    north.browser().sign_in("bea", "a wrong password")
    files = list(north.people.folder.iterdir())
    assert {path.name for path in files} >= {"people.json", "links.json", "access.jsonl"}
    for path in files:
        text = path.read_text()
        assert secret not in text and PASSWORD not in text and "a wrong password" not in text
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(north.people.folder.stat().st_mode) == 0o700


# Passwords.


def test_passwords_are_hashed_with_their_own_salt_and_compared_whole() -> None:
    one, other = (hash_password(PASSWORD, CHEAP) for _ in range(2))
    assert one != other and PASSWORD not in one
    assert verify_password(PASSWORD, one) and verify_password(PASSWORD, other)
    for wrong in ("", PASSWORD[:-1], PASSWORD + " ", PASSWORD.upper()):
        assert not verify_password(wrong, one)
    for broken in ("", "scrypt", "scrypt$16$8$1$00$", "plain$16$8$1$00$00", one.replace("$16$", "$99999999999$")):
        assert not verify_password(PASSWORD, broken)
    with pytest.raises(BadInput, match="12 to 200"):
        hash_password("short", CHEAP)


def test_the_cost_of_a_guess_is_memory() -> None:
    cost = Cost()
    assert 128 * cost.block * cost.cost >= 64 << 20


def test_guessed_passwords_are_refused_after_a_few_even_right_ones(north: ConsoleUnderTest) -> None:
    north.browser(Role.READ)
    name = "the read person"
    statuses = [north.browser().sign_in(name, f"guess number {number}").status_code for number in range(PER_NAME + 2)]
    assert statuses == [403] * PER_NAME + [429] * 2
    assert north.browser().sign_in(name).status_code == 429
    north.clock.now += WINDOW_SECONDS + 1
    assert north.browser().sign_in(name).status_code == 303


def test_guesses_over_many_names_are_limited_together(north: ConsoleUnderTest) -> None:
    names = [f"person {number}" for number in range(12)]
    for name in names:
        north.people.use_link(north.people.make_link(name, Role.READ), "", PASSWORD)
    tried = [north.browser().sign_in(name, "guess").status_code for name in names for _ in range(PER_NAME - 1)]
    assert tried.count(403) == IN_ALL and set(tried[IN_ALL:]) == {429}


def test_known_and_unknown_names_get_the_same_answer(north: ConsoleUnderTest) -> None:
    north.browser(Role.READ)
    pages = [north.browser().sign_in(name, "not the password") for name in ("the read person", "nobody")]
    texts = [re.sub(r'value="[^"]+"', "", one.text) for one in pages]
    assert pages[0].status_code == pages[1].status_code == 403 and texts[0] == texts[1]


def test_a_password_typed_into_the_name_is_not_logged(north: ConsoleUnderTest) -> None:
    north.browser().sign_in("hunter2 hunter2 hunter2", "x")
    assert "hunter2" not in north.log() and "an unknown name" in north.log()


# Sessions.


def test_the_session_of_a_signed_in_browser_is_not_the_one_it_had_before(north: ConsoleUnderTest) -> None:
    north.browser(Role.READ)
    browser = north.browser()
    browser.get("/sign-in")
    planted, token = browser.client.cookies[COOKIE], browser.token
    browser.post("/sign-in", name="the read person", password=PASSWORD)
    assert browser.client.cookies[COOKIE] != planted
    victim = north.browser()
    victim.client.cookies.set(COOKIE, planted, domain="127.0.0.1")
    assert victim.get("/").headers["location"] == "/sign-in"
    browser.get("/")
    assert browser.token != token


def test_an_id_that_the_console_did_not_make_is_no_session(north: ConsoleUnderTest) -> None:
    north.browser(Role.READ)
    browser = north.browser()
    browser.client.cookies.set(COOKIE, "chosen-by-somebody", domain="127.0.0.1")
    browser.get("/sign-in")
    assert browser.client.cookies.get(COOKIE, domain="127.0.0.1") != "chosen-by-somebody" or browser.token
    browser.sign_in("the read person")
    assert "chosen-by-somebody" not in [one.value for one in browser.client.cookies.jar if one.domain == "127.0.0.1"]


def test_cookies_are_strict(north: ConsoleUnderTest) -> None:
    header = north.browser().get("/sign-in").headers["set-cookie"].lower()
    assert "httponly" in header and "samesite=strict" in header and "path=/" in header and "domain" not in header


@pytest.mark.parametrize("seconds", [IDLE_SECONDS + 1, LIFETIME_SECONDS + 1])
def test_sessions_end(north: ConsoleUnderTest, seconds: float) -> None:
    browser = north.browser(Role.ADMINISTER)
    step = min(seconds, IDLE_SECONDS - 1) if seconds > IDLE_SECONDS + 1 else seconds
    passed = 0.0
    while passed + step < seconds:
        north.clock.now += step
        passed += step
        assert browser.get("/").status_code == 200
    north.clock.now += step
    assert browser.get("/").headers["location"] == "/sign-in"
    assert browser.post("/people/invite", name="eve", role="administer").status_code == 403


def test_signing_out_ends_the_session_for_whoever_has_its_id(north: ConsoleUnderTest) -> None:
    browser = north.browser(Role.READ)
    kept = browser.client.cookies[COOKIE]
    assert browser.post("/sign-out").headers["location"] == "/sign-in"
    thief = north.browser()
    thief.client.cookies.set(COOKIE, kept, domain="127.0.0.1")
    assert thief.get("/").headers["location"] == "/sign-in"


def test_a_removed_person_and_one_with_a_new_password_are_signed_out(north: ConsoleUnderTest) -> None:
    admin, reader = north.browser(Role.ADMINISTER), north.browser(Role.READ)
    north.people.use_link(north.people.make_link("the read person", Role.READ), "", "another password")
    assert reader.get("/").headers["location"] == "/sign-in"
    assert reader.sign_in("the read person", "another password").status_code == 303
    admin.get("/people")
    assert admin.post("/people/remove", name="the read person").status_code == 303
    assert reader.get("/").headers["location"] == "/sign-in"


def test_the_last_administrator_stays(north: ConsoleUnderTest) -> None:
    admin = north.browser(Role.ADMINISTER)
    admin.get("/people")
    found = admin.post("/people/remove", name="the administer person")
    assert found.status_code == 400 and "last administrator" in found.text
    assert admin.get("/people").status_code == 200


# Roles.


def fill(path: str) -> str:
    return path.replace(":path", "").format(study="0" * 64, secret="x", id="0", file="x")


def test_every_page_but_those_for_signing_in_needs_a_role(north: ConsoleUnderTest) -> None:
    pages = site_pages(SiteView(north.sites.site("north")))
    open_to_all = {one.path for one in pages if one.role is None}
    assert open_to_all == {"/sign-in", "/link/{secret}", "/link"}
    for page in pages:
        if page.role is None:
            continue
        stranger = north.browser()
        stranger.get("/sign-in")
        path = fill(page.path)
        found = stranger.get(path) if page.method == "GET" else stranger.post(path)
        assert found.status_code in (303, 403), path
        if found.status_code == 303:
            assert found.headers["location"] == "/sign-in"


@pytest.mark.parametrize("role", [Role.READ, Role.APPROVE])
def test_a_lower_role_is_refused_what_a_higher_one_may_do(north: ConsoleUnderTest, role: Role) -> None:
    pages = [one for one in site_pages(SiteView(north.sites.site("north"))) if one.role is not None and one.role > role]
    assert {one.path for one in pages} >= {"/people", "/people/invite", "/people/remove"}
    browser = north.browser(role)
    for page in pages:
        path = fill(page.path)
        found = browser.get(path) if page.method == "GET" else browser.post(path, name="eve", role="administer")
        assert found.status_code == 403 and "needs the role" in found.text, path
    assert "eve" not in north.people.all()
    assert north.log().count("role refused") == len(pages)


def test_a_changed_role_counts_at_the_next_request(north: ConsoleUnderTest) -> None:
    admin = north.browser(Role.ADMINISTER)
    other = north.people.make_link("second", Role.ADMINISTER)
    north.people.use_link(other, "", PASSWORD)
    path = north.people.folder / "people.json"
    page = json.loads(path.read_text())
    page["the administer person"]["role"] = "read"
    path.write_text(json.dumps(page))
    assert admin.get("/people").status_code == 403


def test_an_invitation_shows_its_link_once_and_logs_none_of_it(north: ConsoleUnderTest) -> None:
    admin = north.browser(Role.ADMINISTER)
    admin.get("/people")
    found = admin.post("/people/invite", name="officer", role="approve")
    link = re.search(r"http://127\.0\.0\.1:8750/link/([\w-]+)", found.text)
    assert link is not None
    assert link[1] not in admin.get("/people").text and link[1] not in north.log()
    assert open_link(north, link[1]).status_code == 303
    assert north.people.all()["officer"].rank is Role.APPROVE


def test_the_log_grows_and_says_who(north: ConsoleUnderTest) -> None:
    browser = north.browser(Role.READ)
    before = north.log()
    browser.get("/")
    assert north.log().startswith(before) and len(north.log()) > len(before)
    last = json.loads(north.log().splitlines()[-1])
    assert last["who"] == "the read person" and last["action"] == "looked at the inbox" and last["from"] == "127.0.0.1"
