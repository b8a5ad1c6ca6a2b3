"""Requests from elsewhere: foreign hosts, foreign forms, frames, and plain HTTP from another machine."""

from __future__ import annotations

from typing import Any

import pytest

from comity.console.guard import HEADERS, MAX_FORM_BYTES, Address
from comity.console.people import Role
from comity.errors import BadInput
from tests.console.conftest import PORT, URL, ConsoleUnderTest

FOREIGN_HOSTS = ("evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", "", f"127.0.0.1:{PORT}.")
FOREIGN_ORIGINS = (
    "http://evil.example",
    "null",
    "",
    f"https://127.0.0.1:{PORT}",
    "http://127.0.0.1:1",
    f"{URL}.evil.org",
)


def test_a_foreign_host_gets_nothing(north: ConsoleUnderTest) -> None:
    browser = north.browser(Role.READ)
    for host in FOREIGN_HOSTS:
        found = browser.get("/", headers={"Host": host})
        assert found.status_code == 421 and "Inbox" not in found.text, host


@pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"[::1]:{PORT}"])
def test_own_hosts_are_answered(north: ConsoleUnderTest, host: str) -> None:
    assert north.browser().get("/sign-in", headers={"Host": host}).status_code == 200


def test_a_form_from_another_origin_is_refused(north: ConsoleUnderTest) -> None:
    admin = north.browser(Role.ADMINISTER)
    admin.get("/people")
    for origin in FOREIGN_ORIGINS:
        found = admin.post("/people/invite", {"Origin": origin}, name="eve", role="administer")
        assert found.status_code == 403 and "link/" not in found.text, origin


def test_a_form_without_an_origin_is_refused(north: ConsoleUnderTest) -> None:
    admin = north.browser(Role.ADMINISTER)
    admin.get("/people")
    data = {"token": admin.token, "name": "eve", "role": "administer"}
    assert admin.client.post("/people/invite", data=data).status_code == 403


@pytest.mark.parametrize("token", ["", "x", None, "of another session"])
def test_a_form_without_the_token_of_its_session_is_refused(north: ConsoleUnderTest, token: str | None) -> None:
    admin, other = north.browser(Role.ADMINISTER), north.browser(Role.READ)
    admin.get("/people")
    data: dict[str, Any] = {"name": "eve", "role": "administer"}
    if token is not None:
        other.get("/")
        data["token"] = other.token if token == "of another session" else token
    found = admin.client.post("/people/invite", data=data, headers={"Origin": URL})
    assert found.status_code == 403 and "link/" not in found.text


def test_a_form_without_cookies_is_refused(north: ConsoleUnderTest) -> None:
    admin = north.browser(Role.ADMINISTER)
    admin.get("/people")
    stranger = north.browser()
    stranger.token = admin.token
    assert stranger.post("/people/invite", name="eve", role="administer").status_code == 403


def test_sign_in_needs_a_token_too(north: ConsoleUnderTest) -> None:
    """Otherwise another site could sign a person in as somebody else."""
    north.browser(Role.READ)
    stranger = north.browser()
    assert stranger.post("/sign-in", name="the read person", password="quite a long password").status_code == 403


@pytest.mark.parametrize("path", ["/", "/sign-in", "/people", "/static/console.css", "/no-such-page", "/link/x"])
def test_every_response_forbids_frames_scripts_and_caches(north: ConsoleUnderTest, path: str) -> None:
    found = north.browser(Role.ADMINISTER).get(path)
    for name, value in HEADERS.items():
        if name != "cache-control" or "static" not in path:
            assert found.headers[name] == value, name
    policy = found.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy and "default-src 'none'" in policy
    assert "unsafe" not in policy and "*" not in policy and "data:" not in policy and "sha256" not in policy


def test_pages_hold_no_inline_style_or_script(north: ConsoleUnderTest) -> None:
    study = north.receive()
    browser = north.browser(Role.ADMINISTER)
    for path in ("/", f"/studies/{study}", "/people", "/budget", "/runs", "/health", "/sign-in"):
        text = browser.get(path).text.lower()
        for word in ("<script", "<style", "style=", "javascript:", " onclick", "http://", "https://"):
            assert word not in text, (path, word)


def test_other_methods_are_refused(north: ConsoleUnderTest) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        assert north.browser().client.request(method, "/sign-in").status_code == 405, method


def test_long_and_odd_forms_are_refused(north: ConsoleUnderTest) -> None:
    admin = north.browser(Role.ADMINISTER)
    admin.get("/people")
    assert admin.post("/people/invite", name="x" * MAX_FORM_BYTES, role="read").status_code == 413
    sent = {"Origin": URL, "Content-Type": "application/x-www-form-urlencoded"}
    twice = f"token={admin.token}&name=ada&name=eve&role=read"
    assert admin.client.post("/people/invite", content=twice, headers=sent).status_code == 400
    as_json = {"Origin": URL, "Content-Type": "application/json"}
    assert admin.client.post("/people/invite", content=b"{}", headers=as_json).status_code == 400
    as_text = {"Origin": URL, "Content-Type": "text/plain"}
    assert admin.client.post("/people/invite", content=twice, headers=as_text).status_code == 400


def test_without_tls_another_machine_is_not_answered(north: ConsoleUnderTest) -> None:
    found = north.browser(client=("192.0.2.7", 5)).get("/sign-in")
    assert found.status_code == 403 and "set-cookie" not in found.headers


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "console.example.org"])
def test_an_address_that_others_reach_needs_a_certificate_and_a_name(host: str) -> None:
    with pytest.raises(BadInput, match="--certificate"):
        Address.of(host, PORT, ("console.example.org",))
    with pytest.raises(BadInput, match="--name"):
        Address.of(host, PORT, tls=True)


def test_with_tls_cookies_are_secure_and_bound_to_the_host(north: ConsoleUnderTest) -> None:
    address = Address.of("0.0.0.0", 443, ("console.example.org",), tls=True)
    assert address.cookie.startswith("__Host-")
    assert address.hosts == {"console.example.org", "console.example.org:443"}
    assert address.url == "https://console.example.org"
    north.console.address = address
    from starlette.testclient import TestClient

    from comity.console.app import make_app
    from comity.console.sign_in import sign_in_pages

    client = TestClient(make_app(north.console, sign_in_pages()), base_url="https://console.example.org")
    header = client.get("/sign-in").headers
    assert "secure" in header["set-cookie"].lower() and header["set-cookie"].startswith("__Host-")
    assert "strict-transport-security" in header


def test_the_stylesheet_and_the_icon_are_served_to_everybody(north: ConsoleUnderTest) -> None:
    style = north.browser().get("/static/console.css")
    assert style.status_code == 200 and style.headers["content-type"].startswith("text/css")
    assert (
        ".answers" in style.text and ".flow" in style.text and "header.bar" in style.text and "url(" not in style.text
    )
    assert north.browser().get("/static/icon.svg").headers["content-type"] == "image/svg+xml"
