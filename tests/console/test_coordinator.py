"""The coordinator's console, and the reason of a refusal on its way there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from comity.cli.run_folder import begin_run, load_study, read_manifest
from comity.cli.runs import list_runs
from comity.cli.study import make_manifest, save_signed
from comity.console.coordinator_console import Runs, coordinator_pages, make_coordinator_console
from comity.console.guard import Address
from comity.console.people import People, Role
from comity.crypto.sealing import Identity
from comity.errors import Refused
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.journal_view import read_journal
from comity.federation.messages.channel import Replied
from comity.federation.messages.codec import encode
from comity.federation.messages.signatures import sign_reply
from comity.relay.delivery_file import note_problem, read_delivery, write_delivery
from comity.relay.deployment import deliver_study
from comity.site.decisions import refuse_study
from comity.site.service import SiteService
from comity.study.results.result import Result
from comity.study.study import Study
from tests.console.conftest import CHEAP, PASSWORD, PORT, Browser, Clock
from tests.support.sites import Sites, approve, connect_services, execute


class InProcess:
    """A channel that hands packed studies to services in this process."""

    is_connected = True
    last_errors = ""

    def __init__(self, receivers: Mapping[str, Callable[[bytes], bytes]]) -> None:
        self._receivers = receivers

    def submit(self, messages: Mapping[str, Callable[[], bytes]], *, timeouts: Any = None) -> Any:
        opened: list[Any] = []
        receivers = self._receivers

        class Pending:
            def __enter__(self) -> Pending:
                return self

            def __exit__(self, *_: object) -> None:
                pass

            def open_with(self, function: Any) -> None:
                opened.append(function)

            def __iter__(self) -> Iterator[Replied]:
                for party, make in messages.items():
                    yield Replied(party, opened[0](party, receivers[party](make())))

        return Pending()


def deliver(sites: Sites, study: Study, services: Mapping[str, SiteService]) -> dict[str, str]:
    heard: list[dict[str, str]] = []
    channel: Any = InProcess({name: one.receive for name, one in services.items()})
    try:
        deliver_study(study, keys=sites.coordinator, channel=channel, report=heard.append)
    finally:
        assert len(heard) == 1
    return heard[0]


def test_the_coordinator_reads_why_an_owner_refused(sites: Sites) -> None:
    study, services = sites.study(), sites.services()
    assert deliver(sites, study, services) == {"north": "arrived", "south": "arrived"}
    site = services["north"].site
    refuse_study(site, site.owner(), study.hash, why="no legal basis \x1b[2J yet", by="officer")
    heard: list[dict[str, str]] = []
    channel: Any = InProcess({name: one.receive for name, one in services.items()})
    with pytest.raises(Refused, match=r"north refused study \w+: no legal basis .u001b\[2J yet") as refused:
        deliver_study(study, keys=sites.coordinator, channel=channel, report=heard.append)
    assert refused.value.code == "declined" and "\x1b" not in heard[0]["north"]
    assert heard[0]["north"].startswith("refused by its owner: no legal basis") and heard[0]["south"] == "arrived"


def test_nobody_but_the_studys_coordinator_reads_the_reason(sites: Sites) -> None:
    """A pack that its coordinator did not sign gets a code, whatever the owner decided about the study."""
    study, services = sites.study(), sites.services()
    deliver(sites, study, services)
    site = services["north"].site
    refuse_study(site, site.owner(), study.hash, why="a secret reason", by="")
    stranger = Identity(b"\x07" * 32)
    replies: list[bytes] = []

    def receive(raw: bytes) -> bytes:
        replies.append(services["north"].receive(raw))
        return replies[-1]

    channel: Any = InProcess({"north": receive, "south": services["south"].receive})
    with pytest.raises(Refused) as refused:
        deliver_study(study, keys=stranger, channel=channel)
    assert "secret" not in str(refused.value) and refused.value.code != "declined"


def test_a_reason_that_a_carrier_made_up_counts_as_nothing(sites: Sites) -> None:
    study, services = sites.study(), sites.services()
    forger = Identity(b"\x08" * 32)

    def forge(raw: bytes) -> bytes:
        from comity.federation.messages.sealed_channel import open_ask

        box = open_ask(sites.identity("north"), "north", raw, "study")
        said = encode({"refused": "declined", "key": "", "why": "forged"})
        return box.seal_reply(sign_reply(forger, "north", box.raw, said))

    channel: Any = InProcess({"north": forge, "south": services["south"].receive})
    heard: list[dict[str, str]] = []
    with pytest.raises(Exception, match="not signed with its key"):
        deliver_study(study, keys=sites.coordinator, channel=channel, report=heard.append)
    assert "forged" not in heard[0]["north"]


# The console.


@dataclass
class Coordinated:
    sites: Sites
    out: Path
    folder: Path
    study: Study
    app: Any
    people: People

    def browser(self) -> Browser:
        if self.people.find("lead") is None:
            self.people.use_link(self.people.make_link("lead", Role.READ), "", PASSWORD)
        browser = Browser(self.app)
        browser.sign_in("lead")
        return browser

    def address(self) -> str:
        import re

        found = re.search(r'href="(/runs/[0-9a-f]+)"', self.browser().get("/").text)
        assert found is not None
        return found[1]


@pytest.fixture
def coordinated(sites: Sites, tmp_path: Path) -> Coordinated:
    """A coordinator's folder with a run of a study that was delivered and not approved yet."""
    study, out = sites.study(), tmp_path / "runs"
    folder = out / "2026-11-18-1"
    folder.mkdir(parents=True)
    path = sites.folder / "study" / "study.toml"
    begin_run(folder, replace(make_manifest(path, study), run="run-1"), study.text)
    runs = Runs(lambda: list_runs(out), lambda folder: load_study(folder, read_manifest(folder)))
    people = People(out, Clock(), CHEAP)
    _, app = make_coordinator_console(out, Address.of("127.0.0.1", PORT), runs, people=people)
    return Coordinated(sites, out, folder, study, app, people)


def test_a_run_that_waits_says_for_whom_and_how_it_is_resumed(coordinated: Coordinated) -> None:
    resume = "comity study submit study.toml --keys k --resume runs/2026-11-18-1"
    write_delivery(
        coordinated.folder,
        {"north": "refused by its owner: <b>no</b> legal basis", "south": "arrived"},
        resume,
    )
    note_problem(coordinated.folder, "north refused study 0123: <b>no</b> legal basis")
    assert read_delivery(coordinated.folder).resume == resume
    browser, address = coordinated.browser(), coordinated.address()
    page = browser.get(address).text
    assert "refused by its owner: &lt;b&gt;no&lt;/b&gt; legal basis" in page and "<b>no" not in page
    assert "its owner has not approved it yet" in page and resume in page
    assert browser.get(f"{address}/result").status_code == 400


def test_a_finished_run_shows_parties_rounds_result_dossier_and_files(coordinated: Coordinated) -> None:
    sites, study, folder = coordinated.sites, coordinated.study, coordinated.folder
    services = sites.services()
    for service in services.values():
        approve(service, service.take_in(sites.pack(study)))
    journal = Journal(folder / "journal.sqlite")
    parties = connect_services(study, services, sites.coordinator, journal=journal)
    released, kept = execute(parties)
    outcome = Result.of(study.agreement, released, parties.transcript, run="run-1", kept=kept)
    save_signed(replace(outcome, simulated=False), folder, sites.coordinator)
    seen = read_journal(folder / "journal.sqlite", "run-1")
    assert seen.released and not seen.lost and all(step.decided for step in seen.steps)
    browser, address = coordinated.browser(), coordinated.address()
    page = browser.get(address).text
    assert page.count("takes part") == 2 and "round 3 of 5: a step towards a better model" in page
    for name in ("result", "dossier"):
        found = browser.get(f"{address}/{name}")
        assert found.status_code == 200 and "style=" not in found.text
    assert browser.get(f"{address}/files/result.json").content == (folder / "result.json").read_bytes()
    (folder / "stolen").symlink_to(sites.folder / "coordinator.key")
    for trick in ("journal.sqlite", "run.json", "delivery.json", "stolen", "..%2f..%2fcoordinator.key", "nothing"):
        assert browser.get(f"{address}/files/{trick}").status_code in (400, 404), trick


def test_lost_parties_are_named_with_the_reason(coordinated: Coordinated) -> None:
    journal = Journal(coordinated.folder / "journal.sqlite")
    from comity.federation.coordinator.journal import PartyAsk

    asks = [(name, PartyAsk(encode({}), encode([]), [])) for name in ("north", "south")]
    journal.open("run-1", "run.begin[0]", encode({}), asks)
    journal.record("run-1", "run.begin[0]", {"south": b"x"}, decided=True, why={"north": "silent for 10 s"})
    journal.close()
    page = coordinated.browser().get(coordinated.address()).text
    assert "silent for 10 s" in page and ">lost<" in page and "takes part" in page


def test_every_page_needs_a_person(coordinated: Coordinated) -> None:
    open_to_all = {one.path for one in coordinator_pages(Runs(list, lambda _: coordinated.study)) if one.role is None}
    assert open_to_all == {"/sign-in", "/link/{secret}", "/link"}
    stranger = Browser(coordinated.app)
    for path in ("/", coordinated.address(), f"{coordinated.address()}/files/result.json"):
        assert stranger.get(path).headers["location"] == "/sign-in"


def test_a_damaged_delivery_file_is_no_failure(coordinated: Coordinated) -> None:
    (coordinated.folder / "delivery.json").write_text(json.dumps({"parties": 3}))
    assert coordinated.browser().get(coordinated.address()).status_code == 200
