"""Figures for Prometheus: for programs with the token, for nobody else, and with nothing of records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from comity.console.guard import Address
from comity.console.metrics_page import load_token
from comity.console.people import Role
from comity.console.site_console import make_site_console
from comity.errors import BadInput
from tests.console.conftest import PORT, Browser, ConsoleUnderTest
from tests.support.sites import Sites

TOKEN = "t" * 40


@pytest.fixture
def served(sites: Sites) -> Browser:
    return Browser(make_site_console(sites.site("north"), Address.of("127.0.0.1", PORT), metrics=TOKEN)[1])


def test_a_program_with_the_token_reads_the_figures(served: Browser) -> None:
    found = served.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert found.status_code == 200 and found.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'comity_studies{decision="waiting"} 0' in found.text and "comity_budget_left_ratio" in found.text


@pytest.mark.parametrize("given", [None, "", TOKEN, f"Bearer {TOKEN}x", f"bearer {TOKEN}", "Bearer ", f"Basic {TOKEN}"])
def test_without_the_token_nobody_reads_them(served: Browser, given: str | None) -> None:
    found = served.get("/metrics", headers={} if given is None else {"Authorization": given})
    assert found.status_code == 401 and "comity_" not in found.text


def test_a_console_without_a_token_has_no_such_page_for_anybody(north: ConsoleUnderTest) -> None:
    found = north.browser(Role.ADMINISTER).get("/metrics", headers={"Authorization": "Bearer "})
    assert found.status_code == 404


@pytest.mark.parametrize(
    ("text", "mode", "said"), [(TOKEN, 0o644, "chmod 600"), ("short", 0o600, "at least 32"), (None, 0, "can't be read")]
)
def test_a_token_that_others_know_or_guess_is_refused(tmp_path: Path, text: Any, mode: int, said: str) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    with pytest.raises(BadInput, match=said):
        load_token(path)
