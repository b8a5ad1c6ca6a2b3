"""`comity doctor --site` and `--consortium`: each thing that can be wrong is broken once, and found with what to do."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from comity.cli import main
from comity.crypto import key_file
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from comity.relay import consortium_health as relay_health
from comity.relay import membership
from comity.relay.certificate import create_certificate
from comity.relay.consortium_health import check_consortium
from comity.relay.invitation import Invitation
from comity.relay.roster import Roster
from comity.relay.sandbox import Loopback
from comity.relay.server import CONFIGURATION, FOLDER, server_configuration
from comity.site import health
from comity.site.health import Finding, check_site
from tests.support.sites import NAMES, Sites, approve
from tests.support.witnesses import witnesses_in


@pytest.fixture(scope="session")
def members(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> Loopback:
    """A consortium whose members have the keys of their sites."""
    home = tmp_path_factory.mktemp("members")
    for name in NAMES:
        (home / name).mkdir()
        shutil.copy(pristine / "sites" / name / f"{name}.keys", home / name / f"{name}.keys")
    return Loopback.make(home, NAMES)


@pytest.fixture(scope="session")
def joined(pristine: Path, members: Loopback, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """North has joined a consortium and approved a study; to be copied."""
    folder = tmp_path_factory.mktemp("joined") / "all"
    shutil.copytree(pristine, folder)
    sites = Sites.load(folder / "sites")
    shutil.copy(members.invitation, sites.home("north") / "consortium.toml")
    sites.write("north", top='invitation = "consortium.toml"\n')
    with witnesses_in(folder / "home"):
        service = sites.services()["north"]
        approve(service, service.take_in(sites.pack(sites.study())))
    return folder


@pytest.fixture
def site(joined: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """North's site file, and a relay that answers."""
    shutil.copytree(joined, tmp_path / "all")
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "all" / "home"))
    answers = Finding("relay", "ok", "answers")
    monkeypatch.setattr(health, "_probe", lambda *_: answers)
    return Sites.load(tmp_path / "all" / "sites").site("north")


def found(path: Path, **more: Any) -> dict[str, list[Finding]]:
    out: dict[str, list[Finding]] = {}
    for one in check_site(path, **more):
        out.setdefault(one.name, []).append(one)
    return out


def only(path: Path, name: str, state: str = "failure", **more: Any) -> str:
    """The sentence of the one thing that is not ok."""
    (one,) = [one for several in found(path, **more).values() for one in several if one.state != "ok"]
    assert (one.name, one.state) == (name, state), one
    return one.sentence


NAMED = {"site file", "versions", "keys", "invitation", "relay", "disk", "backup", "ledger", "budget", "clock", "data"}


def test_a_site_where_nothing_is_wrong_has_a_line_for_everything(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Ledger(site.with_name("north.ledger")).commit_head()
    assert set(found(site)) == NAMED and all(one.state == "ok" for several in found(site).values() for one in several)
    for named in (site, site.parent):
        assert main(["doctor", "--site", str(named), "--json"]) == 0
        page = json.loads(capsys.readouterr().out)
        assert page["ok"] and {one["name"] for one in page["findings"]} == NAMED
    assert main(["doctor", "--site", str(site)]) == 0
    assert capsys.readouterr().out.startswith("  ok      site file")
    # Looking spends nothing and reserves nothing.
    assert Ledger(site.with_name("north.ledger")).commit_head() == before


def test_a_failure_ends_with_a_code_and_says_what_to_do(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site.with_name("patients.csv").unlink()
    assert main(["doctor", "--site", str(site)]) == 3
    said = capsys.readouterr().out
    assert "TO DO   data" in said and "patients.csv" in said
    assert main(["doctor", "--site", str(site), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_a_site_file_that_is_wrong_is_the_one_finding(site: Path) -> None:
    site.write_text("party = 3\n")
    assert "party" in only(site, "site file")


def test_versions_that_are_missing_or_too_old(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = metadata.version

    def of(client: str | None) -> Callable[[str], str]:
        def version(name: str) -> str:
            if name != "nats-py":
                return known(name)
            if client is None:
                raise metadata.PackageNotFoundError(name)
            return client

        return version

    monkeypatch.setattr(metadata, "version", of(None))
    assert "pip install 'comity[deploy]'" in only(site, "versions")
    monkeypatch.setattr(metadata, "version", of("2.9.1"))
    assert "2.9.1 is older than 2.16" in only(site, "versions")


def test_keys_that_others_read_that_are_not_there_or_not_the_pinned_ones(site: Path) -> None:
    keys = site.with_name("north.keys")
    keys.chmod(0o640)
    assert "chmod 600" in found(site)["keys"][0].sentence and found(site)["keys"][0].state == "failure"
    keys.unlink()
    assert "there is no such key file" in found(site)["keys"][0].sentence
    key_file.create(keys)
    assert "pins another key of north" in found(site)["keys"][0].sentence
    assert "lists another key for 'north'" in found(site)["invitation"][0].sentence


@pytest.mark.parametrize("name", ["north.ledger", "north.ledger-wal", "studies"])
def test_a_ledger_that_was_put_back_with_a_wider_mode_is_named(site: Path, name: str) -> None:
    path = site.with_name(name)
    path.touch(mode=0o600)
    path.chmod(0o740)
    assert f"{path}: others can read it; run: chmod" in only(site, "modes", "warning")


def test_an_invitation_that_lists_the_key_for_another_or_not_at_all(site: Path, members: Loopback) -> None:
    invitation = Invitation.load(members.invitation)
    north, south = invitation.members["north"], invitation.members["south"]
    path = site.with_name("consortium.toml")
    path.write_text(replace(invitation, members={"south": north}).to_toml())
    assert "lists this key for 'south', not for 'north'" in only(site, "invitation")
    path.write_text(replace(invitation, members={"north": south}).to_toml())
    assert "lists another key for 'north'" in only(site, "invitation")
    path.write_text(replace(invitation, members={}).to_toml())
    assert "was written before north was admitted" in only(site, "invitation", "warning")
    path.unlink()
    assert "there is no invitation here" in only(site, "invitation")
    path.write_text("member = 'north'\naddress = 'tls://x:1'\nauthority = 'PEM'\n")
    assert "Coming from certificates" in only(site, "invitation")


@pytest.mark.parametrize(("days", "state"), [(366, "failure"), (340, "warning"), (3660, "failure"), (-1, "failure")])
def test_an_entry_or_a_relays_certificate_that_ended_or_ends_soon(site: Path, days: int, state: str) -> None:
    then = datetime.now(UTC) + timedelta(days=days)
    (one,) = found(site, clock=lambda: then)["invitation"]
    assert one.state == state
    assert ("ask the consortium's holder" if days > 0 else "set the clock") in one.sentence


def test_without_an_invitation_nothing_is_served(site: Path) -> None:
    Sites.load(site.parents[1]).write("north")
    assert "has no invitation" in only(site, "invitation", "warning")


def test_a_relay_that_does_not_answer_or_is_somebody_else(members: Loopback) -> None:
    context = members.relay_of("north").tls_context()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"tls://127.0.0.1:{closed.getsockname()[1]}"
        gone = health._probe(address, context)
    assert gone.state == "warning" and "firewall" in gone.sentence
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tls://127.0.0.1:{server.getsockname()[1]}"
        line = SimpleNamespace()

        def stranger() -> None:
            line.socket, _ = server.accept()
            line.socket.recv(5)
            line.socket.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=stranger)
        thread.start()
        other = health._probe(address, context)
        thread.join()
        line.socket.close()
    assert other.state == "failure" and "not as your relay" in other.sentence


@pytest.mark.parametrize(("free", "state"), [(50 << 20, "failure"), (500 << 20, "warning")])
def test_a_disk_that_is_nearly_full(site: Path, monkeypatch: pytest.MonkeyPatch, free: int, state: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    assert "free some space" in only(site, "disk", state)


def test_a_ledger_that_is_gone_damaged_or_older_than_what_was_seen(site: Path, tmp_path: Path) -> None:
    path = site.with_name("north.ledger")
    shutil.copy(path, tmp_path / "older")
    Ledger(path).grant_more(Approx(0.5, 1e-5), "a test")
    shutil.copy(path, tmp_path / "newer")
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    shutil.copy(tmp_path / "older", path)
    assert "frozen" in only(site, "ledger")
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    assert "north.ledger" in only(site, "ledger")
    path.touch(mode=0o600)
    path.write_bytes(b"no ledger at all" * 100)
    assert "north.ledger" in only(site, "ledger")


def test_a_ledger_that_was_edited(site: Path) -> None:
    with sqlite3.connect(site.with_name("north.ledger")) as connection:
        for (name,) in connection.execute("select name from sqlite_master where type = 'trigger'").fetchall():
            connection.execute(f'drop trigger "{name}"')
        assert connection.execute("update entries set loss = replace(loss, '3', '9')").rowcount
    assert "north.ledger" in only(site, "ledger")


def test_a_dataset_without_a_budget_and_one_without_anything_left(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = site.read_text()
    site.write_text(text.replace("[policy]", '[data.more]\nsource = "csv"\npath = "patients.csv"\n\n[policy]'))
    assert "data.more has no budget" in found(site)["ledger"][0].sentence
    site.write_text(text)
    (account,) = Ledger(site.with_name("north.ledger")).summary()
    assert account.left is not None
    spent = replace(account, left=account.left * 0)
    monkeypatch.setattr(Ledger, "summary", lambda self: [spent])
    assert "comity ledger grant" in only(site, "budget", "warning")


def test_a_clock_that_runs_behind_what_was_written_here(site: Path) -> None:
    then = datetime.now(UTC) - timedelta(minutes=4)
    assert "set the clock" in only(site, "clock", clock=lambda: then)


def test_data_that_is_gone_or_does_not_fit_the_schema(site: Path) -> None:
    path = site.with_name("patients.csv")
    whole = path.read_text()
    lines = whole.splitlines()
    path.write_text("\n".join(line.partition(",")[2] for line in lines) + "\n")
    assert "data.patients" in only(site, "data")
    path.unlink()
    assert "patients.csv" in only(site, "data")
    path.write_text("\n".join([lines[0], *lines[1:4]]) + "\n")
    assert "data.patients for study" in only(site, "data", "warning")


# A consortium's folder.


@pytest.fixture
def folder(members: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "consortium"
    shutil.copytree(members.consortium, made)
    monkeypatch.setattr(relay_health, "find_server", lambda: Path("nats-server"))
    write(made)
    return made


def write(folder: Path, now: datetime | None = None) -> None:
    roster, at = Roster.load(folder), (folder / FOLDER).resolve()
    (at / CONFIGURATION).write_text(
        server_configuration(roster.users(now or datetime.now(UTC)), listen=roster.listen, folder=at)
    )


def wrong(folder: Path, now: datetime | None = None) -> list[tuple[str, str, str]]:
    return [(one.name, one.state, one.sentence) for one in check_consortium(folder, now) if one.state != "ok"]


def test_a_consortium_where_nothing_is_wrong(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert wrong(folder) == []
    assert main(["doctor", "--consortium", str(folder), "--json"]) == 0
    names = {one["name"] for one in json.loads(capsys.readouterr().out)["findings"]}
    assert names == {"roster", "server", "relay", "configuration"}


def test_a_configuration_that_is_not_what_the_roster_says(folder: Path) -> None:
    """Somebody edited one of them, or the list came to the relay and no reload did."""
    Roster.load(folder).revoked("north").save(folder)
    ((name, state, sentence),) = wrong(folder)
    assert (name, state) == ("configuration", "failure") and "does not match roster.toml" in sentence
    (folder / FOLDER / CONFIGURATION).unlink()
    ((name, state, sentence),) = wrong(folder)
    assert (name, state) == ("configuration", "warning") and "comity relay serve" in sentence


def test_entries_and_a_certificate_that_end(folder: Path) -> None:
    then = datetime.now(UTC) + timedelta(days=350)
    write(folder, then)
    assert {(name, state) for name, state, _ in wrong(folder, then)} == {("member", "warning")}
    for days, state in ((3640, "warning"), (3660, "failure")):
        late = datetime.now(UTC) + timedelta(days=days)
        write(folder, late)
        assert ("relay", state) in {(name, state) for name, state, _ in wrong(folder, late)}


def test_an_invitation_that_pins_another_certificate(folder: Path) -> None:
    own = folder / FOLDER
    for name in ("key.pem", "certificate.pem"):
        (own / name).unlink()
    assert [one[:2] for one in wrong(folder)] == [("relay", "failure")]
    create_certificate(own, "127.0.0.1")
    ((name, state, sentence),) = wrong(folder)
    assert (name, state) == ("relay", "failure") and "pins another certificate" in sentence
    membership.create_consortium(folder, address=Roster.load(folder).address)
    assert wrong(folder) == []


def test_no_roster_and_no_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("PATH", os.fspath(folder))
    monkeypatch.setattr("comity.relay.server.locate_server", lambda: None)
    assert ("server", "failure") in {(name, state) for name, state, _ in wrong(folder)}
    (folder / "roster.toml").unlink()
    ((name, state, sentence),) = wrong(folder)
    assert (name, state) == ("roster", "failure") and "comity consortium init" in sentence


def test_the_age_of_backups_is_said_where_the_site_file_names_them(site: Path) -> None:
    text, copies = site.read_text(), site.parent / "copies"
    assert "names no folder" in found(site)["backup"][0].sentence
    site.write_text(text + '\n[backup]\npath = "copies"\nmax_days = 3\n')
    assert "holds no copy" in only(site, "backup", "warning")
    (copies / "monday").mkdir(parents=True)
    (copies / "monday" / "north.ledger").write_bytes(b"")
    now = datetime.now(UTC)
    assert "0.0 days ago" in found(site, clock=lambda: now)["backup"][0].sentence
    old = (now - timedelta(days=4)).timestamp()
    os.utime(copies / "monday" / "north.ledger", (old, old))
    assert "4.0 days ago, more than backup.max_days = 3" in only(site, "backup", "warning", clock=lambda: now)
