"""What the server refuses to any program of a member: tried with raw clients against a real server.

Each test has a control: the same thing by whoever may.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from comity.errors import BadInput, Refused, Stopped
from comity.relay import membership, server
from comity.relay.certificate import create_certificate, load_certificate
from comity.relay.roster import Roster
from comity.relay.server import AUTHENTICATION_SECONDS, MAX_LINE_BYTES, MAX_MEMBER_CONNECTIONS
from comity.relay.wire import MAX_FRAME_BYTES
from tests.support.relays import Loopback, needs_server

from .relay_client import SOON, RawClient, can_connect, is_admitted

pytestmark = needs_server


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A separate relay, because the test changes the roster."""
    made = Loopback.make(tmp_path_factory.mktemp("rules"), ["north", "south"])
    made.start()
    yield made
    made.stop()


EVERYTHING = (">", "*.>", "comity.>", "comity.*.>", "comity.ask.*", "comity.reply.*")
SYSTEM = ("$SYS.>", "$SYS.REQ.SERVER.PING", "$SYS.ACCOUNT.north.CONNECT", "$JS.>", "$JS.API.INFO", "$G.>", "$SRV.PING")
INBOXES = ("_INBOX.>", "_INBOX.*.*", "_INBOX.abc")


@pytest.mark.parametrize(
    ("member", "foreign"),
    [
        ("north", ("comity.ask.south", "comity.reply.south", "comity.reply.north", "comity.ask.coordinator")),
        ("coordinator", ("comity.ask.north", "comity.ask.south")),
    ],
)
def test_nobody_listens_where_it_may_not(two: Any, member: str, foreign: Any) -> None:
    async def tried() -> None:
        async with RawClient(two.relay_of(member)) as one:
            for subject in (*foreign, *EVERYTHING, *SYSTEM, *INBOXES):
                for queue in ("", "workers"):
                    said = await one.refused(one.client.subscribe(subject, queue=queue))
                    assert any("permissions violation for subscription" in line.lower() for line in said), subject
            own = {"north": "comity.ask.north", "coordinator": "comity.reply.north"}[member]
            assert await one.allowed(one.client.subscribe(own))

    asyncio.run(tried())


@pytest.mark.parametrize(
    ("member", "foreign"),
    [
        (
            "north",
            ("comity.ask.south", "comity.ask.north", "comity.reply.south", "comity.reply", "comity.reply.north.x"),
        ),
        ("coordinator", ("comity.reply.north", "comity.reply.south", "comity.ask", "comity.ask.nobody")),
    ],
)
def test_nobody_speaks_where_it_may_not(two: Any, member: str, foreign: Any) -> None:
    """Asking as a party, replying for another, answering to an inbox, administrative subjects."""

    async def tried() -> None:
        async with RawClient(two.relay_of(member)) as one:
            for subject in (*foreign, "_INBOX.abc", "$SYS.REQ.SERVER.PING", "$JS.API.INFO", "$SRV.PING"):
                said = await one.refused(one.client.publish(subject, b"x"))
                assert any("permissions violation for publish" in line.lower() for line in said), subject
            own = {"north": "comity.reply.north", "coordinator": "comity.ask.north"}[member]
            assert await one.allowed(one.client.publish(own, b"x"))

    asyncio.run(tried())


def test_what_is_refused_does_not_arrive_and_what_is_allowed_does(two: Any) -> None:
    async def tried() -> None:
        relays = {name: two.relay_of(name) for name in ("coordinator", "north", "south")}
        async with (
            RawClient(relays["coordinator"]) as asker,
            RawClient(relays["north"]) as north,
            RawClient(relays["south"]) as south,
        ):
            replies = {name: await asker.hears(f"comity.reply.{name}") for name in ("north", "south")}
            asks = await south.hears("comity.ask.south")
            await north.refused(north.client.publish("comity.reply.south", b"forged"))
            await north.refused(north.client.publish("comity.ask.south", b"forged"))
            assert await north.allowed(north.client.publish("comity.reply.north", b"mine"))
            assert await asker.allowed(asker.client.publish("comity.ask.south", b"asked"))
            end = time.monotonic() + SOON
            while (not replies["north"] or not asks) and time.monotonic() < end:
                await asyncio.sleep(0.01)
            assert (replies, asks) == ({"north": [b"mine"], "south": []}, [b"asked"])

    asyncio.run(tried())


def test_an_oversized_frame_ends_its_connection(two: Any) -> None:
    async def tried() -> None:
        async with RawClient(two.relay_of("north")) as one:
            one.client._max_payload = 1 << 30
            await one.client.publish("comity.reply.north", bytes(MAX_FRAME_BYTES))
            await one.client.flush(SOON)
            assert one.client.is_connected, "the longest frame is carried"
            await one.client.publish("comity.reply.north", bytes(MAX_FRAME_BYTES + 1))
            with contextlib.suppress(Exception):
                await one.client.flush(SOON)
            await asyncio.wait_for(one.closed.wait(), SOON)
            assert "maximum payload" in (two.folder / "relay" / "relay.log").read_text().lower()

    asyncio.run(tried())


def test_a_member_has_few_subscriptions_and_connections(two: Any) -> None:
    async def tried() -> None:
        async with contextlib.AsyncExitStack() as stack:
            held = [
                await stack.enter_async_context(RawClient(two.relay_of("south"))) for _ in range(MAX_MEMBER_CONNECTIONS)
            ]
            assert not await can_connect(two.relay_of("south"))
            assert await can_connect(two.relay_of("north")), "nobody else is kept out"
            for _ in range(MAX_MEMBER_CONNECTIONS + 1):
                with contextlib.suppress(Exception):
                    await held[0].allowed(held[0].client.subscribe("comity.ask.south"))
            assert "maximum subscriptions exceeded" in str(held[0].client.last_error).lower()

    asyncio.run(tried())


def test_the_relay_listens_at_one_port(two: Any) -> None:
    """No monitoring, no cluster, no websocket: the one port is that of members."""
    pid = two.process.pid
    ports = set()
    inodes = (
        {
            path.readlink().name[8:-1]
            for path in Path(f"/proc/{pid}/fd").iterdir()
            if str(path.readlink()).startswith("socket:")
        }
        if Path("/proc/self").exists()
        else set()
    )
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                ports.add(int(words[1].split(":")[1], 16))
    assert ports == {int(Roster.load(two.folder).listen.split(":")[1])}


def test_who_is_not_let_in(two: Any, tmp_path: Path) -> None:
    north = two.relay_of("north")
    assert is_admitted(north)
    assert not is_admitted(north, has_key=False), "no key"
    assert not is_admitted(two.stranger(tmp_path)), "a key that nobody admitted"
    older = north.tls_context()
    older.minimum_version, older.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    assert not is_admitted(north, tls=older), "TLS 1.2"


def test_until_somebody_is_known_no_command_is_taken_and_no_long_line(two: Any) -> None:
    """The server reads one line of a stranger, CONNECT. A longer one, or another command, ends the connection."""
    place = urlsplit(two.relay_of("north").address)
    context = two.relay_of("north").tls_context()

    def said_to(line: bytes) -> bytes:
        with (
            socket.create_connection((place.hostname, place.port), 5) as plain,
            context.wrap_socket(plain, server_hostname=place.hostname) as client,
        ):
            client.settimeout(AUTHENTICATION_SECONDS + 3)
            heard = b""
            with contextlib.suppress(OSError):
                client.sendall(line)
                while more := client.recv(4096):
                    heard += more
            return heard.partition(b"\r\n")[2]

    assert b"Authorization Violation" in said_to(b'CONNECT {"verbose":false}\r\n')
    for line in (b"SUB > 1\r\n", b"PUB comity.ask.north 1\r\nx\r\n"):
        answer = said_to(line)
        assert b"PONG" not in answer and b"+OK" not in answer and b"MSG" not in answer, answer
    long = b'CONNECT {"name":"' + b"x" * MAX_LINE_BYTES + b'"}\r\n'
    assert b"maximum control line exceeded" in said_to(long).lower()


def test_nothing_is_said_in_plain_text(two: Any) -> None:
    async def greeted() -> Any:
        host, port = Roster.load(two.folder).listen.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
        try:
            return await asyncio.wait_for(reader.read(100), 6)
        except (ConnectionError, TimeoutError):
            return b""
        finally:
            writer.close()

    said = asyncio.run(greeted())
    assert b"INFO" not in said and b"PONG" not in said


def test_a_member_can_not_play_the_relay(two: Any, tmp_path: Path) -> None:
    """It has no certificate at all, and one that it makes itself for the relay's address is not the pinned one."""
    create_certificate(tmp_path, "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    greeted = []

    async def serve(reader: Any, writer: Any) -> None:
        greeted.append(True)
        writer.write(b"INFO {}\r\n")

    async def tried() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        async with server:
            port = server.sockets[0].getsockname()[1]
            relay = replace(two.relay_of("north"), address=f"tls://127.0.0.1:{port}")
            reading = ssl.SSLError
            with pytest.raises(reading, match=r"(?i)certificate"):
                await asyncio.open_connection("127.0.0.1", port, ssl=relay.tls_context(), server_hostname="127.0.0.1")
            assert not await can_connect(relay)

    asyncio.run(tried())
    assert greeted == []


def test_the_relays_key_signs_no_certificate_that_members_accept(two: Any, tmp_path: Path) -> None:
    """Who took the relay's key can be the relay; nobody can make further relays with it that members accept."""
    own = two.folder / "relay"
    signer = load_pem_private_key((own / "key.pem").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    issuer, key, now = (
        load_certificate(own / "certificate.pem").subject,
        ec.generate_private_key(ec.SECP256R1()),
        datetime.now(UTC),
    )
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "another relay")])
    made = (
        x509.CertificateBuilder(issuer, name, key.public_key(), 7, now - timedelta(1), now + timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    (tmp_path / "made.pem").write_bytes(made.public_bytes(Encoding.PEM))
    (tmp_path / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "made.pem", tmp_path / "key.pem")

    async def tried() -> None:
        async with await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0, ssl=context) as server:
            port = server.sockets[0].getsockname()[1]
            mine = two.relay_of("north").tls_context()
            with pytest.raises(ssl.SSLError, match=r"(?i)certificate"):
                await asyncio.open_connection("127.0.0.1", port, ssl=mine, server_hostname="127.0.0.1")

    asyncio.run(tried())


# Membership while the relay runs: relays of their own, because these change who belongs.


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Any]:
    made = Loopback.make(tmp_path, ["north", "south"])
    made.start()
    yield made
    made.stop()


def test_a_revoked_member_is_cut_off_at_once_and_others_notice_nothing(fresh: Any) -> None:
    async def tried() -> Any:
        async with RawClient(fresh.relay_of("north")) as north, RawClient(fresh.relay_of("south")) as south:
            began = time.monotonic()
            assert await asyncio.to_thread(membership.revoke_member, fresh.folder, "north")
            await asyncio.wait_for(north.closed.wait(), SOON)
            took = time.monotonic() - began
            await south.client.flush(SOON)
            assert south.client.is_connected and not south.errors
            assert not await can_connect(fresh.relay_of("north")) and await can_connect(fresh.relay_of("south"))
            return took

    assert asyncio.run(tried()) < 5
    with pytest.raises(Refused, match="was revoked"):
        fresh.admit("north")


def test_a_new_key_under_the_old_name_does_not_bring_the_stolen_one_back(fresh: Any, tmp_path: Path) -> None:
    fresh.keys_of("north").rename(tmp_path / "stolen.keys")
    stolen = replace(fresh.relay_of("south"), keys=tmp_path / "stolen.keys")
    assert is_admitted(stolen)
    membership.revoke_member(fresh.folder, "north")
    fresh.admit("north")
    assert is_admitted(fresh.relay_of("north")) and not is_admitted(stolen)


def test_a_reload_that_fails_as_a_whole_is_noticed(fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server goes on with the old configuration and says so in its log alone: a member that was to be removed stays
    connected, which is why whoever revokes must hear of it."""
    made = cast(Any, server).server_configuration

    def unchangeable(*arguments: Any, **options: Any) -> Any:
        return made(*arguments, **options).replace("max_pending: ", "max_pending: 1")

    monkeypatch.setattr(server, "server_configuration", unchangeable)
    with pytest.raises(Stopped, match="keeps the old one"):
        membership.revoke_member(fresh.folder, "north")
    assert is_admitted(fresh.relay_of("north")), "the control: it is still in"
    monkeypatch.undo()
    assert server.reload(fresh.folder) and not is_admitted(fresh.relay_of("north"))


def test_a_connection_does_not_outlive_its_entry(fresh: Any) -> None:
    """The server knows no end dates: an open connection is cut by the relay that serves, which looks at the roster."""
    roster = Roster.load(fresh.folder)
    ends = datetime.now(UTC) + timedelta(seconds=1.5)
    roster.admitted("south", replace(roster.entries()["south"], until=ends)).save(fresh.folder)
    server.reload(fresh.folder)

    async def tried() -> None:
        async with RawClient(fresh.relay_of("south")) as south:
            await asyncio.sleep(max(0.0, (ends - datetime.now(UTC)).total_seconds()) + 0.2)
            await south.client.flush(SOON)
            assert south.client.is_connected, "the control: the server has not noticed"
            assert await asyncio.to_thread(server._apply_expiry, fresh.folder, frozenset()) == {"south"}
            await asyncio.wait_for(south.closed.wait(), SOON)
            assert await can_connect(fresh.relay_of("north")) and not await can_connect(fresh.relay_of("south"))

    asyncio.run(tried())


def test_one_relay_runs_in_a_folder_and_a_number_that_was_given_again_is_not_it(fresh: Any) -> None:
    with pytest.raises(BadInput, match="runs already"):
        server.start(fresh.folder)
    fresh.stop()
    assert not server.is_running(fresh.folder)
    (fresh.folder / "relay" / "relay.pid").write_text(json.dumps(os.getpid()))
    assert not server.is_running(fresh.folder)
    assert server.reload(fresh.folder) is False
