"""A member that can't reach the relay learns why within seconds: the relay is full, or nothing answers."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urlsplit

import pytest

from comity.cli import main
from comity.errors import BadInput, Stopped
from comity.relay import address, server
from comity.relay.address import RelayAddress, probe_relay
from comity.relay.channel import NatsChannel
from comity.site import health
from tests.support.relays import Loopback, needs_server, wait_until
from tests.support.sites import NAMES, Sites

from .strangers import Strangers

pytestmark = needs_server

SOON = 12.0


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Loopback:
    return Loopback.make(tmp_path_factory.mktemp("reached"), NAMES)


@pytest.fixture
def full(members: Loopback, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A relay with four places, all of them taken by strangers whom it does not cut."""
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 4)
    monkeypatch.setattr(server, "HANDSHAKE_SECONDS", 60)
    members.start()
    try:
        with Strangers(members.relay_of("north")) as strangers:
            wait_until(lambda: _is_filled(strangers, members.relay_of("north")))
            yield
    finally:
        members.stop()


def _is_filled(strangers: Strangers, relay: RelayAddress) -> bool:
    """Whether several who dial in turn are all refused. One that was let in held a place, so strangers come again."""
    strangers.come(silent=8)
    return all(b"maximum connections exceeded" in _greeted(relay) for _ in range(4))


def _greeted(relay: RelayAddress) -> bytes:
    """What the server sends to a client that is silent for a moment."""
    place = urlsplit(relay.address)
    assert place.hostname is not None and place.port is not None
    with socket.create_connection((place.hostname, place.port), 0.2) as line, suppress(OSError):
        return line.recv(256)
    return b""


def test_a_full_relay_is_said_to_be_full(members: Loopback, full: None) -> None:
    relay, began = members.relay_of("north"), time.monotonic()
    finding = health._probe(relay.address, relay.tls_context())
    assert finding.state == "warning" and "is full" in finding.sentence
    with NatsChannel(members.relay_of("coordinator"), NAMES) as channel, pytest.raises(Stopped, match="is full"):
        channel.wait_until_connected(1.0)
    assert time.monotonic() - began < SOON


def test_a_relay_that_is_up_is_reached_at_once(members: Loopback) -> None:
    members.start()
    try:
        assert probe_relay(members.relay_of("north")).state == "answers"
        with NatsChannel(members.relay_of("coordinator"), NAMES) as channel:
            channel.wait_until_connected()
            assert channel.is_connected
    finally:
        members.stop()


def test_who_is_not_admitted_hears_what_the_relay_said(members: Loopback, tmp_path: Path) -> None:
    members.start()
    try:
        stranger = members.stranger(tmp_path / "stranger")
        with NatsChannel(stranger, NAMES) as channel, pytest.raises(Stopped, match="Authorization Violation"):
            channel.wait_until_connected(1.0)
    finally:
        members.stop()


def test_a_study_is_not_submitted_for_minutes_to_a_relay_that_nobody_runs(
    members: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sites").mkdir()
    study = Sites.make(tmp_path / "sites").study()
    words = ["study", "submit", str(study.where), "--keys", str(members.keys_of("coordinator"))]
    began = time.monotonic()
    assert main([*words, "--invitation", str(members.invitation), "--quiet"]) == 5
    said = capsys.readouterr().err
    assert "does not answer" in said and "--resume" in said
    assert time.monotonic() - began < SOON


def test_a_server_that_sends_a_byte_at_a_time_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "PROBE_SECONDS", 0.3)
    near, far = socket.socketpair()
    stop = Event()

    began = time.monotonic()

    def drip() -> None:
        while not stop.wait(0.05) and time.monotonic() < began + 5:
            far.send(b"I")
        far.close()

    thread = Thread(target=drip)
    thread.start()
    found = address.read_server_version(near)
    took = time.monotonic() - began
    stop.set()
    thread.join()
    near.close()
    assert found == "" and took < 3


@pytest.mark.parametrize(
    "address",
    ["tls://h:99999", "tls://h:port", "tls://h:0", "tls://[::1", "tls://:4222", "wss://a..b:1", f"tls://{'a' * 70}:1"],
)
def test_an_address_that_nobody_can_dial_is_bad_input(tmp_path: Path, address: str) -> None:
    """It comes from a site file or an invitation; unchecked, the first library that connects would fail on it."""
    with pytest.raises(BadInput, match="expected tls://HOST:PORT"):
        RelayAddress(address, tmp_path / "consortium.toml", tmp_path / "north.keys")


@pytest.mark.parametrize("address", ["tls://relay.example:4222", "wss://10.0.0.1", "tls://[::1]:4222", "tls://h"])
def test_an_address_that_can_be_dialled_is_taken(tmp_path: Path, address: str) -> None:
    assert RelayAddress(address, tmp_path / "consortium.toml", tmp_path / "north.keys").address == address
