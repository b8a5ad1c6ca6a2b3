"""A full disk at a site: nothing is spent twice, and the run continues once there is room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from comity.errors import Stopped
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import execute
from comity.federation.coordinator.parties import Parties
from comity.federation.owner.host import Host
from comity.privacy.ledger import storage
from comity.relay.deployment import connect_parties
from comity.site.service import SiteService
from comity.study.local.channel import LocalChannel
from tests.faults import seen
from tests.faults.checks import Line, broken
from tests.faults.consortia import RUN, Folder, make
from tests.faults.seen import Record


@pytest.fixture(scope="module")
def averaging(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Of four parties, one of whom may be lost."""
    return make(tmp_path_factory.mktemp("disk") / "pristine", "averaging")


@pytest.fixture(params=["small", pytest.param("averaging", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    made = request.getfixturevalue(request.param).copied(tmp_path / "consortium")
    with made.witnessed():
        yield made


@contextmanager
def full(monkeypatch: pytest.MonkeyPatch, path: Any) -> Iterator[None]:
    """SQLite finds no room for another page of this file."""
    connected = storage._connect_in_mode

    def short_of_room(where: Any, *rest: Any, **more: Any) -> Any:
        connection = connected(where, *rest, **more)
        if where == path:
            (pages,) = connection.execute("pragma page_count").fetchone()
            connection.execute(f"pragma max_page_count = {pages}")
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(storage, "_connect_in_mode", short_of_room)
        yield


def run(place: Any, *, progress: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
    services = {party: SiteService(place.site(party)) for party in place.parties}
    parties = connect_parties(
        place.study,
        run=RUN,
        channel=LocalChannel(services),
        journal=Journal(place.journal),
        keys=place.keys,
        progress=progress,
    )
    return execute(parties)


def held(place: Any, record: Any) -> dict[str, list[Line]]:
    ledgers = {party: place.ledger(party) for party in place.parties}
    wrong, lines = broken(place.study.agreement, ledgers, record.sights(RUN), {}, RUN)
    assert not wrong
    return lines


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    for owner, names in ((Host, ("answer",)), (Parties, ("sum", "perturb", "compute"))):
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))
    made = seen.Record(tmp_path / "seen")
    seen.at_a_site(made)
    seen.at_the_coordinator(made)
    return made


def test_a_site_whose_disk_is_full_is_lost_or_stops_the_run_which_then_goes_on(
    place: Any, record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place.folder / "north" / "north.ledger"
    dropouts = place.study.consortium.dropouts
    with full(monkeypatch, path):
        if dropouts:
            # It can't even reserve, and the others are enough.
            first = run(place)
            assert not [line for line in held(place, record)["north"] if line.kind == "draw"]
        else:
            with pytest.raises(Stopped, match="north") as stopped:
                run(place)
            assert stopped.value.exit_code == 5 and "same run id" in str(stopped.value)
    values = run(place)
    if dropouts:
        assert str(values) == str(first)
    lines = held(place, record)
    draws = {party: [line.release for line in of if line.kind == "draw"] for party, of in lines.items()}
    assert all(draws[party] for party in place.parties if party != "north" or not dropouts), draws


@pytest.mark.long
def test_a_disk_that_is_full_in_the_middle_costs_no_second_noise(
    place: Any, record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full from the first step that is charged: a site that was charged before answers as before."""
    path = place.folder / "north" / "north.ledger"
    context = full(monkeypatch, path)

    def filling(step: Any) -> None:
        if step.startswith(("cells", "sum.advertise", "count", "vote", "train")) and not entered:
            entered.append(step)
            context.__enter__()

    entered: list[str] = []
    try:
        run(place, progress=filling)
    except Stopped as stopped:
        assert "north" in str(stopped)
    assert entered
    context.__exit__(None, None, None)
    held(place, record)
    run(place)
    lines = held(place, record)
    assert all(of[-1].kind == "close" for of in lines.values())
