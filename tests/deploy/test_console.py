"""The consoles in a real browser, from a study that arrived over a relay to its approval, run, result and dossier."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from comity.crypto import key_file
from comity.relay.sandbox import free_port
from comity.site.decisions import read_decisions
from tests.deploy.deployment import deployed
from tests.deploy.methods import METHODS
from tests.support.chromium import console_process, fetch_axe, needs_chromium, visiting
from tests.support.relays import needs_server
from tests.support.witnesses import witnesses_in

pytestmark = [needs_server, needs_chromium, pytest.mark.deploy]

METHOD = "averaging"


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str | None:
    return fetch_axe(tmp_path_factory.mktemp("axe"))


def shots() -> Path | None:
    """Where to leave pictures of every page, for a person to look at."""
    named = os.environ.get("COMITY_SHOTS")
    return None if named is None else Path(named)


def test_a_study_is_approved_run_and_read_in_a_browser(tmp_path: Path, axe: str | None) -> None:
    serve = ("-m", "comity", "site", "serve", "--site")
    with witnesses_in(tmp_path / "witness"), deployed(tmp_path, serve) as made:
        study = made.study(METHOD, 5.0)
        waits = made.submit(METHOD)
        assert waits.returncode == 4, waits.stderr
        runs = tmp_path / "coordinator" / "runs" / METHOD
        (folder,) = (one for one in runs.iterdir() if one.name != "console")
        owner, *others = METHODS[METHOD].parties
        words = ("site", "console", "--site", made.site(owner), "--port", str(free_port()))
        with console_process(*words) as printed, visiting(printed["url"], axe, shots()) as visitor:
            page = visitor.page
            visitor.open("/sign-in")
            visitor.check("sign-in")
            visitor.use_link(printed["link"], "the data protection officer")
            visitor.check("inbox")
            page.click(f"text={study.name}")
            visitor.check("study")
            page.fill("#typed", study.hash[:8])
            with page.expect_navigation():
                page.click("form[action$=approve] button")
            assert "Approved for" in page.content()
            visitor.check("approved")
            for party in others:
                at = ("--dataset", METHOD, "--yes", "--site", made.site(party))
                assert made.comity("site", "approve", study.hash[:12], *at) == 0
            done = made.submit(METHOD, "--resume", str(folder))
            assert done.returncode == 0, f"{done.stderr}\n{made.logs()}"
            for path, name in (("/budget", "budget"), ("/health", "health"), ("/people", "people"), ("/runs", "runs")):
                visitor.open(path)
                visitor.check(name)
            page.wait_for_timeout(3000)
            visitor.open("/health")
            visitor.check("health")
            visitor.open("/runs")
            page.click("tbody a")
            visitor.check("run")
            with page.expect_download() as downloaded:
                page.click("text=received.json")
            assert downloaded.value.suggested_filename == "received.json"
            page.click("text=Read the page of the result")
            visitor.check("result")
            page.go_back()
            page.click("text=Read the dossier")
            visitor.check("dossier")
            assert not visitor.faults, "\n".join(visitor.faults)
        home = tmp_path / owner
        (decided,) = read_decisions(home, key_file.load(home / f"{owner}.keys").public)
        assert decided.decision.by == "the data protection officer" and decided.study == study.hash
        words = ("study", "console", "--out", str(runs), "--port", str(free_port()))
        with console_process(*words) as printed, visiting(printed["url"], axe, shots()) as visitor:
            visitor.use_link(printed["link"], "the coordinator")
            visitor.check("coordinator-runs")
            visitor.page.click("tbody a")
            visitor.check("coordinator-run")
            for words_of_link, name in (("page of the result", "result"), ("Read the dossier", "dossier")):
                visitor.page.click(f"text={words_of_link}")
                visitor.check(f"coordinator-{name}")
                visitor.page.go_back()
            assert not visitor.faults, "\n".join(visitor.faults)
            # The control: what is looked for is found.
            visitor.page.evaluate("document.querySelector('main').innerHTML = '<input><pre id=wide></pre>'")
            visitor.check("control")
            assert axe is None or any("label" in fault for fault in visitor.faults)
    if axe is None:
        pytest.skip("everything but accessibility was checked: npm fetched no axe-core")
