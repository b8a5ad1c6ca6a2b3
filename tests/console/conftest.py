"""A site's console over a real site folder, and a browser without a window: a client that keeps cookies."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs: pip install 'comity[console]'")
pytest.importorskip("httpx", reason="needs httpx, which Starlette's test client uses")

from starlette.testclient import TestClient

from comity.console.app import Console
from comity.console.guard import Address
from comity.console.passwords import Cost
from comity.console.people import People, Role
from comity.console.site_console import make_site_console
from comity.site.service import SiteService
from tests.support.sites import Sites
from tests.support.witnesses import witnesses_in

PORT = 8750
URL = f"http://127.0.0.1:{PORT}"
PASSWORD = "quite a long password"
CHEAP = Cost(cost=16, parallel=1)
"""Tests hash many passwords; the cost is in the hash, so checking is the same code."""


@dataclass
class Clock:
    """A time that tests set."""

    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Browser:
    """Follows no redirects, sends the Origin of its page and the token of the last page that it saw."""

    def __init__(self, app: Any, *, client: tuple[str, int] = ("127.0.0.1", 50_000)) -> None:
        self.client = TestClient(app, base_url=URL, follow_redirects=False, client=client)
        self.token = ""

    def get(self, path: str, **more: Any) -> Any:
        found = self.client.get(path, **more)
        self._keep_token(found)
        return found

    def post(self, path: str, headers: Any = None, **form: Any) -> Any:
        data = {"token": self.token, **form}
        found = self.client.post(path, data=data, headers={"Origin": URL, **(headers or {})})
        self._keep_token(found)
        return found

    def _keep_token(self, found: Any) -> None:
        seen = re.search(r'name="token" value="([^"]+)"', found.text)
        if seen is not None:
            self.token = seen[1]

    def sign_in(self, name: str, password: str = PASSWORD) -> Any:
        self.get("/sign-in")
        found = self.post("/sign-in", name=name, password=password)
        self.get("/")
        return found


@dataclass
class ConsoleUnderTest:
    sites: Sites
    console: Console
    app: Any
    clock: Clock
    people: People
    names: dict[str, Role] = field(default_factory=dict)

    def browser(self, role: Role | None = None, **more: Any) -> Browser:
        """A browser, signed in as a person of this role."""
        browser = Browser(self.app, **more)
        if role is not None:
            name = f"the {role.word} person"
            if self.people.find(name) is None:
                self.people.use_link(self.people.make_link(name, role), "", PASSWORD)
            assert browser.sign_in(name).status_code == 303
        return browser

    def log(self) -> str:
        path = self.console.access_log.path
        return path.read_text() if path.exists() else ""

    def receive(self, **study: Any) -> str:
        """A study that arrives at north; its hash."""
        made = self.sites.study(**study)
        return SiteService(self.sites.site("north")).take_in(self.sites.pack(made)).study


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pristine")
    with witnesses_in(folder / "home"):
        (folder / "sites").mkdir()
        Sites.make(folder / "sites")
    return folder


@pytest.fixture
def sites(pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sites:
    shutil.copytree(pristine, tmp_path / "all")
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "all" / "home"))
    return Sites.load(tmp_path / "all" / "sites")


@pytest.fixture
def north(sites: Sites) -> Iterator[ConsoleUnderTest]:
    from comity.console.rate_limits import RateLimits
    from comity.console.sessions import Sessions

    clock = Clock()
    people = People(sites.home("north"), clock, CHEAP)
    console, app = make_site_console(
        sites.site("north"),
        Address.of("127.0.0.1", PORT),
        people=people,
        sessions=Sessions(clock),
        limits=RateLimits(clock),
    )
    yield ConsoleUnderTest(sites, console, app, clock, people)
