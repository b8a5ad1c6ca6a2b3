"""A study between owners with site files, over a real relay: handed over, refused, approved, run and resumed."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from comity.crypto import key_file
from comity.errors import Refused, StudyError
from comity.federation.coordinator.journal import Journal
from comity.federation.messages.channel import Timeouts
from comity.federation.messages.codec import encode
from comity.relay import sandbox
from comity.relay.channel import NatsChannel
from comity.relay.deployment import connect_parties, deliver_study, run_deployed
from comity.relay.sandbox import run_processes, start_process, stop_process
from comity.report.result import load_result
from comity.site.service import open_endpoint
from comity.site.site_file import SiteFile
from comity.site.status import Refusals, list_runs
from comity.study.local.channel import LocalChannel
from tests.support.relays import Loop, Loopback, Site, needs_server, wait_until
from tests.support.sites import NAMES, approve, execute

pytestmark = needs_server


@pytest.fixture
def served(sites: Any, tmp_path: Path) -> Iterator[Any]:
    """Owners' services behind a relay, in this process."""
    loopback = Loopback.make(tmp_path / "members", NAMES)
    loopback.start()
    loop, services = Loop(), sites.services()
    ends = [Site(loop, loopback, name, service) for name, service in services.items()]
    for one in ends:
        one.up()
    with NatsChannel(loopback.relay_of("coordinator"), NAMES, repeat_every=0.2, grace=5.0) as channel:
        yield sites, services, channel, loopback
    for one in ends:
        one.end()
    loop.close()
    loopback.stop()


def left(service: Any) -> list[Any]:
    return [str(account) for account in service.site.owner().ledger.summary()]


def test_a_study_is_handed_over_refused_approved_and_run(served: Any, tmp_path: Path) -> None:
    sites, services, channel, _ = served
    study = sites.study()
    deliver_study(study, keys=sites.coordinator, channel=channel)
    deliver_study(study, keys=sites.coordinator, channel=channel)
    arrivals = {name: service.inbox.arrivals() for name, service in services.items()}
    assert [[one.study for one in arrived] for arrived in arrivals.values()] == [[study.hash]] * 2
    before = {name: left(service) for name, service in services.items()}
    asked = {"run": "run-1", "keys": sites.coordinator, "channel": channel, "journal": tmp_path / "journal.sqlite"}
    with pytest.raises(Refused) as refused:
        run_deployed(study, **asked)
    assert refused.value.code == "study" and before == {name: left(service) for name, service in services.items()}
    assert Refusals(services["north"].site.home).last(1)
    for name, service in services.items():
        approve(service, arrivals[name][0])
    outcome = run_deployed(study, **asked)
    assert outcome.guarantee.private and outcome.guarantee.epsilon == pytest.approx(0.9, abs=0.01)
    assert all(before[name] != left(service) for name, service in services.items())
    # Running again with the same journal gives the same values and costs nothing.
    spent = {name: left(service) for name, service in services.items()}
    again = run_deployed(study, **asked)
    assert encode(dict(again.released)) == encode(dict(outcome.released))
    assert spent == {name: left(service) for name, service in services.items()}
    outcome.save(tmp_path / "run")
    assert load_result(tmp_path / "run").study_hash == study.hash
    wait_until(
        lambda: all(list((service.site.home / "results").glob("*/received.json")) for service in services.values())
    )


def test_a_run_that_lost_its_relay_goes_on_by_itself(served: Any, tmp_path: Path) -> None:
    sites, services, channel, loopback = served
    study = sites.study()
    deliver_study(study, keys=sites.coordinator, channel=channel)
    for service in services.values():
        approve(service, service.inbox.arrivals()[0])
    steps = []

    def cut(path: Any) -> None:
        steps.append(path)
        if len(steps) == 4:
            loopback.down(0.3)

    asked = {"run": "run-1", "keys": sites.coordinator, "channel": channel, "journal": tmp_path / "journal.sqlite"}
    outcome = run_deployed(study, **asked, progress=cut, timeouts=Timeouts(silent=2))
    assert len(steps) > 4 and outcome.guarantee.private


@pytest.mark.deploy
def test_what_is_asked_over_the_relay_is_what_is_asked_in_one_process(served: Any, tmp_path: Path) -> None:
    """The same steps with the same sizes: the relay changes nothing about a run."""
    sites, services, channel, _ = served
    study = sites.study(epsilon=0.3)
    deliver_study(study, keys=sites.coordinator, channel=channel)
    for service in services.values():
        approve(service, service.inbox.arrivals()[0], runs=2)
    keys = sites.coordinator
    deployed = run_deployed(study, run="run-1", keys=keys, channel=channel, journal=tmp_path / "journal.sqlite")
    local = connect_parties(study, run="run-2", channel=LocalChannel(services), journal=Journal(), keys=keys)
    execute(local)
    shapes = [
        [(line.path, line.direction, line.parties) for line in one.lines]
        for one in (deployed.transcript, local.transcript)
    ]
    assert shapes[0] == shapes[1] and len(shapes[0]) > 10


def test_a_pack_that_nobody_may_submit_is_refused_by_its_code(served: Any) -> None:
    sites, services, channel, _ = served
    for name in NAMES:
        sites.write(name, submitter=sites.identity(name))
    with pytest.raises(Refused, match=r"(north|south) does not take study .* into its inbox \(policy\)"):
        deliver_study(sites.study(), keys=sites.coordinator, channel=channel)
    assert all(not service.inbox.arrivals() for service in services.values())


def test_a_site_file_and_its_keys_name_one_party(sites: Any, tmp_path: Path) -> None:
    loopback = Loopback.make(tmp_path / "members", NAMES)
    sites.write("north", top=f'invitation = "{loopback.invitation}"\n')
    keys = sites.home("north") / "north.keys"

    def with_keys_of(member: Any) -> Any:
        keys.write_bytes(loopback.keys_of(member).read_bytes())
        return open_endpoint(SiteFile.load(sites.site("north")))

    assert with_keys_of("north").relay.relay_key().user == loopback.relay_of("north").relay_key().user
    with pytest.raises(StudyError, match="lists this key for 'south', not for 'north'"):
        with_keys_of("south")
    keys.unlink()
    key_file.create(keys)
    with pytest.raises(StudyError, match="lists another key for 'north'"):
        open_endpoint(SiteFile.load(sites.site("north")))


# As processes.


@pytest.mark.deploy
def test_a_consortium_is_tried_within_a_minute(tmp_path: Path) -> None:
    began = time.monotonic()
    command = [sys.executable, "-m", "comity", "consortium", "try", "--parties", "3", "--folder", "here", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["results"]) == {"north", "south", "east"} and load_result(found["folder"]).guarantee.private
    assert time.monotonic() - began < 60


class Deployed:
    """A consortium of processes that can be killed."""

    def __init__(self, home: Any, names: Any, stack: Any) -> None:
        self.names, self.stack, self.home = names, stack, home
        self.loopback = sandbox.create_sandbox(home, names)
        stack.enter_context(sandbox.sandbox_home(home))
        self.relay = stack.enter_context(self.loopback.relay())
        self.sites = dict(zip(names, stack.enter_context(run_processes([self.site(name) for name in names]))))

    def site(self, name: Any) -> Any:
        return [
            "-m",
            "comity",
            "site",
            "serve",
            "--site",
            str(self.home / name / "site.toml"),
        ], self.home / name / "log"

    def restart(self, name: Any) -> None:
        self.sites[name] = start_process(*self.site(name))
        self.stack.callback(stop_process, self.sites[name])

    def submit(self, *more: Any) -> Any:
        asker = self.home / "coordinator"
        words = ["-m", "comity", "study", "submit", str(asker / "study.toml"), "--keys", str(asker / "coordinator.key")]
        places = ["--invitation", str(self.loopback.invitation), "--out", str(asker / "runs"), "--quiet", *more]
        process = start_process([*words, *places], asker / "log")
        self.stack.callback(stop_process, process)
        return process

    def rounds(self) -> Any:
        """How many asks the coordinator has decided."""
        found = list((self.home / "coordinator" / "runs").glob("*/journal.sqlite"))
        if not found:
            return 0
        with sqlite3.connect(f"file:{found[0]}?mode=ro", uri=True) as journal:
            try:
                return journal.execute("SELECT count(*) FROM closed").fetchone()[0]
            except sqlite3.OperationalError:
                return 0

    def charges(self) -> dict[Any, Any]:
        """How many runs each ledger was charged for."""
        return {
            name: [run.state for run in list_runs(SiteFile.load(self.home / name / "site.toml").owner().ledger)]
            for name in self.names
        }


@pytest.fixture
def deployed(tmp_path: Path) -> Iterator[Deployed]:
    with ExitStack() as stack:
        yield Deployed(tmp_path, ["north", "south"], stack)


@pytest.mark.deploy
@pytest.mark.parametrize("killed", ["site", "relay", "coordinator"])
def test_whoever_is_killed_the_run_ends_with_one_charge(deployed: Deployed, killed: str) -> None:
    process = deployed.submit()
    wait_until(lambda: deployed.rounds() > 10 or process.poll() is not None, 120)
    assert process.poll() is None, "it was over before anybody was killed"
    if killed == "site":
        deployed.sites["north"].kill()
        deployed.restart("north")
    elif killed == "relay":
        deployed.relay.kill()
        deployed.relay.wait()
        again = deployed.stack.enter_context(deployed.loopback.relay())
        assert again.poll() is None
    else:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process = deployed.submit("--resume", next((deployed.home / "coordinator" / "runs").iterdir()).name)
    assert process.wait(180) == 0, (deployed.home / "coordinator" / "log").read_text()
    wait_until(lambda: deployed.charges() == {"north": ["closed"], "south": ["closed"]})


@pytest.mark.deploy
def test_the_report_of_a_deployed_run_says_how_good_the_model_is(deployed: Deployed) -> None:
    """By the study file's own `[evaluation]`, with intervals, in the same charge."""
    study = deployed.home / "coordinator" / "study.toml"
    study.write_text(study.read_text() + "\n[evaluation]\n")
    assert deployed.submit().wait(180) == 0, (deployed.home / "coordinator" / "log").read_text()
    (folder,) = (deployed.home / "coordinator" / "runs").iterdir()
    found = load_result(folder)
    assert found.guarantee.private and found.guarantee.epsilon <= 1.0
    assert found.evaluation is not None
    accuracy = found.evaluation.figures["accuracy"]
    assert 0 <= accuracy.low <= accuracy.value <= accuracy.high <= 1 and accuracy.high - accuracy.low < 0.5
    assert "measured under privacy" in (folder / "report.html").read_text().lower()
    wait_until(lambda: deployed.charges() == {"north": ["closed"], "south": ["closed"]})
