"""Faults of a deployed study: a party that is gone at the end, a disk that fills up, a site that is slow, a clock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from comity.federation.coordinator.parties import Parties
from comity.federation.coordinator.replies import PartyValues
from comity.federation.owner.host import Answer, Host
from comity.relay.deployment import SILENT_SECONDS
from tests.faults import seen
from tests.faults.checks import broken, lines_of
from tests.faults.consortia import Folder, make
from tests.faults.deployed_kills import Deployment, exit_code
from tests.support.children import end_children
from tests.support.relays import needs_server, wait_until

pytestmark = [needs_server, pytest.mark.deploy]


@pytest.fixture(autouse=True)
def over() -> Iterator[None]:
    yield
    end_children()


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Nobody may be lost here: three parties, all of whom must answer."""
    return make(tmp_path_factory.mktemp("deployed") / "pristine", "softlabel", runs=10, deployed=True)


@pytest.fixture
def place(pristine: Any, tmp_path: Path) -> Iterator[Any]:
    made = pristine.copied(tmp_path / "consortium")
    with made.witnessed():
        yield made


def run_of(at: Any) -> Any:
    (folder,) = at.runs.iterdir()
    return folder, json.loads((folder / "run.json").read_text())["run"]


def held(at: Any) -> dict[Any, Any]:
    """The ledgers' lines of the only run, after they were compared with all that was seen."""
    place, (_, run) = at.place, run_of(at)
    ledgers = {party: place.ledger(party) for party in place.parties}
    wrong, lines = broken(place.study.agreement, ledgers, at.record.sights(run), {}, run)
    assert not wrong
    return {party: [line.kind for line in of] for party, of in lines.items()}


PAID = ["reserve", "draw", "close"]


def test_a_party_that_is_gone_at_the_end_hears_of_it_when_the_run_is_resumed(place: Any) -> None:
    with Deployment(place) as at:

        def dying_at_the_end() -> None:
            tell = Parties.tell

            def told(self: Any, *words: Any, **more: Any) -> bool:
                os.kill(at.sites["north"], signal.SIGKILL)
                return tell(self, *words, **more)

            cast(Any, Parties).tell = told

        assert exit_code(at.submit(also=dying_at_the_end)) == 0, at.said()
        assert held(at)["north"] == ["reserve", "draw"] and held(at)["south"] == PAID
        os.waitpid(at.sites["north"], 0)
        at.start_site("north")
        folder, _ = run_of(at)
        result = (folder / "result.json").read_bytes()
        assert exit_code(at.submit(folder)) == 0, at.said()
        assert held(at)["north"] == PAID
        assert (folder / "result.json").read_bytes() == result
        wait_until(lambda: list((place.folder / "north" / "results").glob("*/received.json")))


@contextmanager
def small_disk(folder: Any) -> Iterator[Any]:
    """This folder on a separate disk of a few megabytes."""
    kept = folder.with_name(f"{folder.name}-kept")
    folder.rename(kept)
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        folder.rmdir()
        kept.rename(folder)
        pytest.skip("no disk can be mounted here")
    try:
        subprocess.run(["cp", "-a", f"{kept}/.", folder], check=True)
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Any) -> None:
    with (folder / "filling").open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with_room = True
            while with_room:
                try:
                    with_room = file.write(bytes(size)) == size
                except OSError:
                    with_room = False


@pytest.mark.parametrize("when", ["before", "paying", "end"])
def test_a_site_whose_disk_is_full_stops_the_run_which_goes_on_once_there_is_room(place: Any, when: str) -> None:
    with small_disk(place.folder / "north") as folder, Deployment(place) as at:
        # One that starts on a full disk says so and ends, as services do.
        wait_until(lambda: "is connected to the relay" in at.said("north"), 120)

        def filling() -> None:
            if when == "before":
                fill(folder)
                return
            ask, tell = Parties.ask, Parties.tell

            def asked(self: Any, step: Any, *words: Any, **more: Any) -> dict[str, PartyValues]:
                if when == "paying" and getattr(step, "__name__", step) not in ("ready", "begin", "meet"):
                    fill(folder)
                return ask(self, step, *words, **more)

            def told(self: Any, *words: Any, **more: Any) -> bool:
                fill(folder)
                return tell(self, *words, **more)

            cast(Any, Parties).ask, cast(Any, Parties).tell = asked, told

        code = exit_code(at.submit(also=filling))
        assert code == (0 if when == "end" else 5), at.said()
        if when != "end":
            assert "north" in at.said() and "--resume" in at.said()
        (folder / "filling").unlink()
        held(at)
        assert exit_code(at.submit(run_of(at)[0])) == 0, at.said()
        assert all(lines == PAID for lines in held(at).values()), held(at)
        wait_until(lambda: list((folder / "results").glob("*/received.json")))
        assert not at.place.ledger("north").verify().frozen


def test_a_slow_site_is_waited_for_as_long_as_it_shows_life(place: Any) -> None:
    """Slower than the time after which a party that shows none is lost."""
    with Deployment(place) as at:
        os.kill(at.sites["north"], signal.SIGKILL)
        os.waitpid(at.sites["north"], 0)
        answered = Host.answer

        def slow(self: Any, *words: Any) -> Answer:
            reply = answered(self, *words)
            if reply.path is not None and reply.path.mount == "" and reply.refusal is None:
                time.sleep(SILENT_SECONDS + 3)
            return reply

        cast(Any, Host).answer = slow
        try:
            at.start_site("north")
        finally:
            cast(Any, Host).answer = answered
        began = time.monotonic()
        assert exit_code(at.submit()) == 0, at.said()
        assert time.monotonic() - began > SILENT_SECONDS + 3
        assert held(at)["north"] == PAID


def test_two_runs_at_once_are_kept_apart_whoever_is_killed(place: Any) -> None:
    """The sites of both die in the middle, and come back."""
    with Deployment(place) as at:
        both = [at.submit(), at.submit()]
        wait_until(lambda: at.record.path.exists(), 60)
        for party in place.parties[:2]:
            os.kill(at.sites[party], signal.SIGKILL)
            os.waitpid(at.sites[party], 0)
            at.start_site(party)
        codes = [exit_code(one) for one in both]
        for folder in at.runs.iterdir():
            if not (folder / "result.json").exists():
                codes.append(exit_code(at.submit(folder)))
        assert 0 in codes and set(codes) <= {0, 5}, at.said()
        for folder in at.runs.iterdir():
            run = json.loads((folder / "run.json").read_text())["run"]
            assert not seen.twice(at.record.sights(run))
            for party in place.parties:
                kinds = [line.kind for line in lines_of(place.ledger(party), run)]
                assert kinds == PAID, (party, run, kinds)
