"""Signing in at a provider: a small one in this file, and answers that it never gave."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("authlib", reason="needs: pip install 'comity[console-oidc]'")

import httpx
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey

from comity.console.app import make_app
from comity.console.guard import Address
from comity.console.inbox_pages import inbox_pages
from comity.console.oidc import ATTEMPT_SECONDS, Provider, ProviderTable
from comity.console.people import Role
from comity.console.rate_limits import PER_NAME
from comity.console.sign_in import sign_in_pages
from comity.console.site_view import SiteView
from comity.errors import BadInput
from tests.console.conftest import PORT, Browser, ConsoleUnderTest

ISSUER = "https://provider.example.org"
CLIENT = "comity-console"


@dataclass
class SmallProvider:
    """Discovery, keys and tokens. `claims` are put over those that it would give; `key` signs."""

    key: Any = field(default_factory=lambda: ECKey.generate_key("P-256", {"kid": "one"}))
    signs_with: Any = None
    algorithm: str = "ES256"
    claims: dict[str, Any] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def authorize(self, address: str, subject: str = "subject-7") -> tuple[str, str]:
        """What happens at the provider after the person signed in there: a code and the state."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert asked["client_id"] == CLIENT and asked["response_type"] == "code"
        assert asked["redirect_uri"] == f"http://127.0.0.1:{PORT}/oidc/callback" and "code_challenge" in asked
        code = f"code-{len(self.codes)}-{time.monotonic_ns()}"
        self.codes[code] = {**asked, "sub": subject}
        return code, asked["state"]

    def answer(self, request: Any) -> Any:
        if request.url.path == "/.well-known/openid-configuration":
            places = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
            return httpx.Response(200, json={"issuer": ISSUER, **{k: ISSUER + v for k, v in places.items()}})
        if request.url.path == "/keys":
            return httpx.Response(200, json={"keys": [self.key.as_dict(private=False)]})
        form = {name: values[0] for name, values in parse_qs(request.content.decode()).items()}
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None or not form.get("code_verifier"):
            return httpx.Response(400, json={"error": "invalid_grant"})
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": CLIENT,
            "sub": asked["sub"],
            "nonce": asked["nonce"],
            "iat": now,
            "exp": now + 300,
        }
        token = jwt.encode(
            {"alg": self.algorithm, "kid": "one"},
            {key: value for key, value in {**claims, **self.claims}.items() if value is not None},
            self.signs_with or self.key,
            algorithms=[self.algorithm],
        )
        return httpx.Response(200, json={"access_token": "x", "token_type": "Bearer", "id_token": token})


@dataclass
class WithProvider:
    north: ConsoleUnderTest
    provider: SmallProvider
    clock: Any

    def browser(self) -> Browser:
        return Browser(self.north.app)

    def begin(self, browser: Browser) -> str:
        found = browser.get("/oidc/start")
        assert found.status_code == 303, found.text
        return str(found.headers["location"])

    def finish(self, browser: Browser, code: str, state: str) -> Any:
        return browser.get("/oidc/finish", params={"code": code, "state": state})

    def is_signed_in(self, browser: Browser) -> bool:
        return bool(browser.get("/").status_code == 200)


@pytest.fixture
def world(north: ConsoleUnderTest) -> WithProvider:
    provider = SmallProvider()
    table = ProviderTable(issuer=ISSUER, client_id=CLIENT)
    clock = [0.0]
    north.console.provider = Provider(
        table,
        "",
        north.console.address,
        transport=httpx.MockTransport(provider.answer),
        clock=lambda: time.time() + clock[0],
    )
    view = SiteView(north.sites.site("north"))
    north.app = make_app(north.console, [*sign_in_pages(), *inbox_pages(view)])
    north.people.use_link(north.people.make_link("root", Role.ADMINISTER), "", "quite a long password")
    north.people.bind("ada", Role.APPROVE, "subject-7")
    return WithProvider(north, provider, clock)


def test_a_bound_person_signs_in_and_the_answer_page_needs_no_cookie(world: WithProvider) -> None:
    browser = world.browser()
    code, state = world.provider.authorize(world.begin(browser))
    # From another site a strict cookie is not sent: the answer is shown to anybody, and signs nobody in.
    page = Browser(world.north.app).get("/oidc/callback", params={"code": code, "state": state})
    link = re.search(r'href="(/oidc/finish[^"]+)"', page.text)
    assert link is not None and page.status_code == 200
    found = browser.get(link[1].replace("&amp;", "&"))
    assert found.status_code == 303 and world.is_signed_in(browser)
    assert "ada" in browser.get("/").text and code not in world.north.log()


def test_the_session_id_changes(world: WithProvider) -> None:
    browser = world.browser()
    code, state = world.provider.authorize(world.begin(browser))
    before = browser.client.cookies["comity-8750"]
    world.finish(browser, code, state)
    assert browser.client.cookies["comity-8750"] != before


def test_an_answer_counts_once(world: WithProvider) -> None:
    browser = world.browser()
    code, state = world.provider.authorize(world.begin(browser))
    assert world.finish(browser, code, state).status_code == 303
    browser.get("/")
    assert browser.post("/sign-out").status_code == 303
    assert world.finish(browser, code, state).status_code == 403
    # Nor in a new attempt, whose state it does not have; nor with that state, because the provider took the code back.
    _, fresh = world.provider.authorize(world.begin(browser))
    assert world.finish(browser, code, state).status_code == 403
    _, fresh = world.provider.authorize(world.begin(browser))
    assert world.finish(browser, code, fresh).status_code == 403
    assert not world.is_signed_in(browser)


def test_an_answer_signs_in_no_other_browser(world: WithProvider) -> None:
    """Otherwise an attacker could sign a person in as the attacker."""
    attacker, victim = world.browser(), world.browser()
    code, state = world.provider.authorize(world.begin(attacker))
    assert world.finish(victim, code, state).status_code == 403
    world.begin(victim)
    assert world.finish(victim, code, state).status_code == 403
    assert not world.is_signed_in(victim)


def test_an_attempt_ends_with_its_first_wrong_answer(world: WithProvider) -> None:
    browser = world.browser()
    code, state = world.provider.authorize(world.begin(browser))
    assert world.finish(browser, code, "another state").status_code == 403
    assert world.finish(browser, code, state).status_code == 403


def test_a_late_answer_is_refused(world: WithProvider) -> None:
    browser = world.browser()
    code, state = world.provider.authorize(world.begin(browser))
    world.clock[0] = ATTEMPT_SECONDS + 1
    assert world.finish(browser, code, state).status_code == 403


PAST = int(time.time()) - 3600
WRONG: list[dict[str, Any]] = [
    {"aud": "another-application"},
    {"aud": [CLIENT, "another-application"]},
    {"aud": []},
    {"aud": None},
    {"iss": "https://evil.example.org"},
    {"nonce": "of another attempt"},
    {"nonce": None},
    {"exp": PAST},
    {"exp": None},
    {"iat": PAST + 9_999_999},
    {"sub": ""},
    {"sub": None},
]


@pytest.mark.parametrize("claims", WRONG, ids=[f"{place}-{next(iter(claims))}" for place, claims in enumerate(WRONG)])
def test_tokens_for_others_or_other_attempts_are_refused(world: WithProvider, claims: dict[str, Any]) -> None:
    browser = world.browser()
    world.provider.claims = claims
    code, state = world.provider.authorize(world.begin(browser))
    found = world.finish(browser, code, state)
    assert found.status_code == 403 and not world.is_signed_in(browser)
    assert "ID token" in found.text


def test_a_token_for_several_audiences_names_this_one_as_its_party(world: WithProvider) -> None:
    browser = world.browser()
    world.provider.claims = {"aud": [CLIENT, "another"], "azp": CLIENT}
    assert world.finish(browser, *world.provider.authorize(world.begin(browser))).status_code == 303


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (ECKey.generate_key("P-256", {"kid": "one"}), "ES256"),
        (OctKey.import_key("the public key as a shared secret, long enough"), "HS256"),
    ],
)
def test_a_token_that_others_signed_is_refused(world: WithProvider, key: Any, algorithm: str) -> None:
    browser = world.browser()
    world.provider.signs_with, world.provider.algorithm = key, algorithm
    code, state = world.provider.authorize(world.begin(browser))
    assert world.finish(browser, code, state).status_code == 403 and not world.is_signed_in(browser)


def test_an_account_that_nobody_bound_is_nobody(world: WithProvider) -> None:
    browser = world.browser()
    code, state = world.provider.authorize(world.begin(browser), subject="subject-8")
    found = world.finish(browser, code, state)
    assert found.status_code == 403 and "belongs to nobody here" in found.text
    assert "subject-8" not in world.north.log()


def test_attempts_are_limited(world: WithProvider) -> None:
    statuses = [world.browser().get("/oidc/start").status_code for _ in range(PER_NAME + 2)]
    assert statuses == [303] * PER_NAME + [429] * 2


def test_a_person_whose_binding_is_removed_is_signed_out(world: WithProvider) -> None:
    browser = world.browser()
    world.finish(browser, *world.provider.authorize(world.begin(browser)))
    world.north.people.remove("ada")
    assert not world.is_signed_in(browser)
    world.finish(browser, *world.provider.authorize(world.begin(browser)))
    assert not world.is_signed_in(browser)


def test_a_provider_without_tls_is_refused() -> None:
    with pytest.raises(BadInput, match="https"):
        Provider(ProviderTable(issuer="http://provider.example.org", client_id="x"), "", Address.of("127.0.0.1", PORT))
