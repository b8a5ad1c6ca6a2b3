"""Servers with known vulnerabilities are not run: each minor version has a minimum patch."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from comity.cli import main
from comity.errors import BadInput
from comity.relay import membership, server
from comity.relay.address import ProbeResult, read_server_version
from comity.relay.consortium_health import check_consortium
from comity.relay.server_version import FLOOR, parse_version
from comity.site import health

REFUSED = (
    *("2.9.10", "2.10.29", "2.11.0", "2.11.14", "2.11.15", "2.11.16-RC.1", "2.12.0", "2.12.6", "2.12.7-RC.3"),
    *("2.13.0", "2.13.9", "2.14.0-RC.1", "1.4.1", "0.0.0", "2.14", "latest", ""),
)
ADMITTED = ("2.11.16", "2.11.40", "2.11.17-RC.1", "2.12.7", "2.12.10", "2.14.0", "2.15.0-RC.1", "2.15.1", "3.0.0")


def install(folder: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server beside this Python that says that it is of this version."""
    server = folder / "nats-server"
    server.write_text(f"#!/bin/sh\necho 'nats-server: v{version}'\n")
    server.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(folder / "python"))


@pytest.mark.parametrize("version", REFUSED)
def test_a_server_with_known_holes_does_not_serve(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    membership.create_consortium(tmp_path / "consortium", address="127.0.0.1:1", listen="127.0.0.1:1")
    install(tmp_path, version, monkeypatch)
    assert main(["relay", "serve", str(tmp_path / "consortium")]) == 3
    assert "known vulnerabilities" in capsys.readouterr().err
    (finding,) = [one for one in check_consortium(tmp_path / "consortium") if one.name == "server"]
    assert finding.state == "failure" and "install a newer one" in finding.sentence


@pytest.mark.parametrize("version", ADMITTED)
def test_a_server_from_the_floor_on_serves(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, version, monkeypatch)
    assert server.find_server() == tmp_path / "nats-server"


def test_the_floor_is_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "2.15.1", monkeypatch)
    monkeypatch.setattr("comity.relay.server_version.FLOOR", {**FLOOR, (2, 15): 2})
    with pytest.raises(BadInput, match=r"2\.15\.2 or newer"):
        server.find_server()


def test_the_version_that_a_relay_says_is_warned_of() -> None:
    """A site's owner does not run the relay, and can only check the version that the relay reports."""
    ours, its = socket.socketpair()
    with ours, its:
        writer = threading.Thread(target=its.sendall, args=(b'INFO {"version":"2.12.3","go":"go1.24"} \r\n',))
        writer.start()
        said = read_server_version(ours)
        writer.join()
    assert said == "2.12.3"
    finding = health.relay_finding("tls://127.0.0.1:1", ProbeResult("answers", version=said))
    assert finding.state == "warning" and "2.12.3" in finding.sentence and "2.12.7" in finding.sentence
    for version in ("2.14.0", ""):
        assert health.relay_finding("tls://127.0.0.1:1", ProbeResult("answers", version=version)).state == "ok"


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400\r\n\r\n", b"INFO {\r\n", b'INFO {"version": 7}\r\n', b"x" * 9000])
def test_what_is_no_greeting_has_no_version(said: bytes) -> None:
    ours, its = socket.socketpair()
    with ours:
        with its:
            its.sendall(said)
        assert read_server_version(ours) == ""


def test_a_version_is_read_from_what_the_server_prints() -> None:
    assert parse_version("nats-server: v2.15.1") == parse_version("2.15.1")
