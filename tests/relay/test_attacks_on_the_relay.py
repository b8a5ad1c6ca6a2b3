"""Attacks that end at the relay: nothing of them reaches a site. Each is tried with a bare client on a real server."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from comity.crypto import key_file
from comity.crypto.public_block import PublicBlock, block_text
from comity.errors import Refused, StudyError
from comity.relay import membership, server
from comity.relay.address import RelayAddress
from comity.relay.roster import Roster
from comity.relay.server import AUTHENTICATION_SECONDS, HANDSHAKE_SECONDS, MAX_MEMBER_CONNECTIONS
from comity.relay.wire import MAX_FRAME_BYTES
from comity.site.service import open_endpoint
from comity.site.site_file import SiteFile
from tests.support.relays import Loopback, needs_server

from .hostile_relay import HostileRelay, hostile_nonces, verifies
from .matrix import NOTHING, attack
from .relay_client import SOON, RawClient, connection_errors, is_admitted
from .strangers import GARBAGE, Strangers

pytestmark = needs_server

RELAY = "the relay"
HANDSHAKE = "the relay, in the handshake"


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    made = Loopback.make(tmp_path_factory.mktemp("attacked"), ["north", "south", "west"])
    made.start()
    yield made
    made.stop()


@pytest.fixture
def heard(members: Any) -> _Heard:
    """What arrives at the subjects of south, and at the coordinator from it, while something is tried."""
    return _Heard(members)


class _Heard:
    def __init__(self, members: Any) -> None:
        self.members = members

    def while_(self, member: Any, tries: Any) -> Any:
        """What the server says to `who`, a member, about each thing that it tries; nothing of it may arrive."""

        async def run() -> Any:
            south, asker = RawClient(self.members.relay_of("south")), RawClient(self.members.relay_of("coordinator"))
            async with south, asker, RawClient(self.members.relay_of(member)) as one:
                asks, replies = await south.hears("comity.ask.south"), await asker.hears("comity.reply.south")
                said = ["; ".join(await one.refused(tried(one.client))) for tried in tries]
                await south.client.flush(SOON)
                await asker.client.flush(SOON)
                # The control: what may arrive does, over the same connections.
                await asker.client.publish("comity.ask.south", b"asked")
                await south.client.publish("comity.reply.south", b"replied")
                end = time.monotonic() + SOON
                while not (asks and replies) and time.monotonic() < end:
                    await asyncio.sleep(0.005)
                assert (asks, replies) == ([b"asked"], [b"replied"])
                return said

        return asyncio.run(run())


# Who may connect.


@attack("no key: TLS alone, or a name and a password", by=RELAY, told="Authorization Violation")
def test_nobody_connects_without_a_key(row: Any, members: Any) -> None:
    north = members.relay_of("north")
    for options in ({}, {"user": "north", "password": "north"}, {"token": north.relay_key().user}):
        assert row.told in connection_errors(north, has_key=False, **options)
    assert connection_errors(north) == "", "the control: with its key"


@attack(
    "a member's public key with a signature of another key, or one of an earlier nonce",
    by=RELAY,
    told="Authorization Violation",
)
def test_a_public_key_alone_is_nobody(row: Any, members: Any, tmp_path: Path) -> None:
    """Its public half is no secret: the roster, the invitation and the server's log have it."""
    north, other = members.relay_of("north"), members.stranger(tmp_path / "other")

    def tried(answer: Any) -> Any:
        async def run() -> Any:
            one = RawClient(north, signature_cb=answer)
            try:
                async with one:
                    await one.client.flush(SOON)
            except Exception as error:
                one.errors.append(str(error))
            return "; ".join(one.errors)

        return asyncio.run(run())

    first: list[bytes] = []

    def remembered(nonce: str) -> bytes:
        first.append(north.relay_key().answer(nonce))
        return first[0]

    assert row.told in tried(other.relay_key().answer)
    assert tried(remembered) == "", "the control: the answer to this very nonce"
    assert row.told in tried(remembered), "an answer to an earlier nonce"
    signing = key_file.load(members.keys_of("north"))
    assert row.told in tried(lambda nonce: base64.b64encode(signing.sign(nonce.encode()))), "the key that signs studies"


@attack("TLS below 1.3", by=HANDSHAKE, told="alert protocol version")
def test_nobody_connects_with_an_older_tls(row: Any, members: Any) -> None:
    older = members.relay_of("north").tls_context()
    older.minimum_version = older.maximum_version = ssl.TLSVersion.TLSv1_2
    assert row.told in connection_errors(members.relay_of("north"), tls=older)


@attack("plain text in place of TLS", by=HANDSHAKE, told=NOTHING)
def test_nothing_is_answered_in_plain_text(row: Any, members: Any) -> None:
    async def said() -> Any:
        host, port = members.relay_of("north").address.removeprefix("tls://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b'CONNECT {"verbose":false}\r\nSUB > 1\r\nPING\r\n')
        try:
            return await asyncio.wait_for(reader.read(100), SOON)
        except (ConnectionError, TimeoutError):
            return b""
        finally:
            writer.close()

    # A TLS alert, if anything.
    assert asyncio.run(said())[:1] in (b"", b"\x15")


@attack("a stranger's key, which the roster does not have", by=RELAY, told="Authorization Violation")
def test_a_key_that_the_roster_lacks_is_nobody(row: Any, members: Any, tmp_path: Path) -> None:
    assert row.told in connection_errors(members.stranger(tmp_path / "stranger"))


@attack(
    "another server in the relay's place, with a certificate of any authority",
    by="the member, in the handshake",
    told="certificate",
    sees="the same word, in its log",
)
def test_a_server_without_the_pinned_certificate_is_not_the_relay(row: Any, members: Any, tmp_path: Path) -> None:
    """Also one that the system's authorities signed, and one that another relay's pinned key signed."""
    other = Loopback.make(tmp_path, ["north"])
    other.start()
    try:
        diverted = replace(members.relay_of("north"), address=other.relay_of("north").address)
        assert row.told in connection_errors(diverted).lower()
        assert connection_errors(other.relay_of("north")) == "", "the control: with its own invitation"
    finally:
        other.stop()


@attack(
    "an entry that ended, of a member that is connected",
    by="the relay: cut off when it ends, and not let in again",
    told="Authorization Violation",
)
def test_an_entry_that_ended_is_out(row: Any, members: Any) -> None:
    members.admit("east")
    east = members.relay_of("east")

    async def cut() -> None:
        async with RawClient(east) as one:
            roster = Roster.load(members.folder)
            entry = replace(roster.entries()["east"], until=datetime.now(UTC) - timedelta(seconds=1))
            roster.admitted("east", entry).save(members.folder)
            assert await asyncio.to_thread(server._apply_expiry, members.folder, frozenset()) == {"east"}
            await asyncio.wait_for(one.closed.wait(), SOON)

    asyncio.run(cut())
    assert row.told in connection_errors(east) and is_admitted(members.relay_of("north")), "nobody else is kept out"


@attack(
    "the wrong name: a site that serves with another member's keys",
    by="the site's own program, before it dials",
    told="lists this key for",
    sees="the same sentence, at its terminal",
)
def test_a_site_does_not_serve_with_the_keys_of_another(row: Any, members: Any, sites: Any) -> None:
    sites.write("north", top=f'invitation = "{members.invitation}"\n')
    (sites.home("north") / "north.keys").write_bytes(members.keys_of("south").read_bytes())
    with pytest.raises(StudyError, match=row.told):
        open_endpoint(SiteFile.load(sites.site("north")))


@attack(
    "the wrong name: a member that listens where another is asked, with its own key",
    by=RELAY,
    told="Permissions Violation for Subscription",
)
def test_a_key_listens_for_the_name_that_the_roster_has(row: Any, members: Any) -> None:
    async def tried() -> Any:
        async with RawClient(members.relay_of("south")) as one:
            return "; ".join(await one.refused(one.client.subscribe("comity.ask.north")))

    assert row.told.lower() in asyncio.run(tried()).lower()


@attack(
    "the wrong name: a block that a member sends to be admitted, in the name of another or of the coordinator",
    by="the holder's program, which keeps the keys that it has",
    told="is admitted with other keys",
    sees="nothing: the holder reads it",
)
def test_a_block_does_not_take_the_place_of_another(row: Any, members: Any, tmp_path: Path) -> None:
    keys = key_file.create(tmp_path / "mallory.keys")
    for name in ("south", "coordinator"):
        (tmp_path / "mallory.toml").write_text(block_text(name, keys))
        with pytest.raises(Refused, match=row.told):
            membership.admit_members(members.folder, [PublicBlock.load(tmp_path / "mallory.toml")])
        assert is_admitted(members.relay_of(name))
    assert not is_admitted(replace(members.relay_of("north"), keys=tmp_path / "mallory.keys"))


@attack(
    "a revoked key, of a member that is connected",
    by="the relay: cut off, and not let in again",
    told="Authorization Violation",
)
def test_a_revoked_member_is_out(row: Any, members: Any) -> None:
    west = members.relay_of("west")

    async def cut() -> None:
        async with RawClient(west) as one:
            await asyncio.to_thread(membership.revoke_member, members.folder, "west")
            await asyncio.wait_for(one.closed.wait(), SOON)

    asyncio.run(cut())
    assert row.told in connection_errors(west) and is_admitted(members.relay_of("north")), "nobody else is kept out"


@attack(
    "a nonce that is a message of Comity, from a hostile relay that wants it signed",
    by="the member's program, which signs nothing and closes",
    told=NOTHING,
    sees="not a nonce of its server, in its log",
)
def test_a_relay_gets_nothing_signed_but_nonces(row: Any, tmp_path: Path) -> None:
    keys, statements = key_file.create(tmp_path / "north.keys"), hostile_nonces()
    for statement in statements:
        with HostileRelay(tmp_path, statement) as relay:
            said = connection_errors(RelayAddress.load(relay.invitation, tmp_path / "north.keys"))
        assert "not a nonce" in said and relay.signatures == []
    with HostileRelay(tmp_path, "QJ2o_9xZbW-fKpA") as relay:
        connection_errors(RelayAddress.load(relay.invitation, tmp_path / "north.keys"))
    (signature,) = relay.signatures
    assert verifies(key_file.load_relay_key(tmp_path / "north.keys").public, signature, b"QJ2o_9xZbW-fKpA"), (
        "the control"
    )
    assert not any(verifies(keys.public.sign, signature, one.encode()) for one in [*statements, "QJ2o_9xZbW-fKpA"])


# Who may hear and say what.


def _listening(*subjects: Any) -> list[Any]:
    return [lambda client, subject=subject: client.subscribe(subject) for subject in subjects]


def _saying(*subjects: Any) -> list[Any]:
    return [lambda client, subject=subject: client.publish(subject, b"forged") for subject in subjects]


LISTEN, SPEAK = "Permissions Violation for Subscription", "Permissions Violation for Publish"


def each(row: Any, said: Any) -> bool:
    """Every single try was refused with these words."""
    return bool(said) and all(row.told.lower() in one.lower() for one in said)


@attack("listening to what another is asked, or replies", by=RELAY, told=LISTEN)
def test_nobody_listens_to_another(row: Any, heard: _Heard) -> None:
    assert each(row, heard.while_("north", _listening("comity.ask.south", "comity.reply.south", "comity.reply.north")))


@attack("listening to everything, by wildcards", by=RELAY, told=LISTEN)
def test_nobody_listens_to_everything(row: Any, heard: _Heard) -> None:
    for member in ("north", "coordinator"):
        assert each(row, heard.while_(member, _listening(">", "*.>", "comity.>", "comity.ask.*", "*.*.south")))


@attack("asking as a party", by=RELAY, told=SPEAK)
def test_no_party_asks(row: Any, heard: _Heard) -> None:
    assert each(row, heard.while_("north", _saying("comity.ask.south", "comity.ask.north")))


@attack("replying for another, also as the coordinator", by=RELAY, told=SPEAK)
def test_nobody_replies_for_another(row: Any, heard: _Heard) -> None:
    for member in ("north", "coordinator"):
        assert each(row, heard.while_(member, _saying("comity.reply.south")))


@attack("guessing inboxes: listening at them, and answering to them", by=RELAY, told="Permissions Violation")
def test_there_are_no_inboxes(row: Any, heard: _Heard) -> None:
    tries = [*_listening("_INBOX.>", "_INBOX.abc.*"), *_saying("_INBOX.abc.1", "_INBOX.abc")]
    assert each(row, heard.while_("north", tries)) and each(row, heard.while_("coordinator", tries))


@attack("subjects of the system, of storage and of services", by=RELAY, told="Permissions Violation")
def test_nobody_reaches_the_system(row: Any, heard: _Heard) -> None:
    tries = [*_saying("$SYS.REQ.SERVER.PING", "$JS.API.INFO", "$SRV.PING"), *_listening("$SYS.>", "$JS.>", "$SRV.>")]
    assert each(row, heard.while_("north", tries)) and each(row, heard.while_("coordinator", tries))


# How much.


@attack("a flood of connections", by=RELAY, told="maximum account active connections exceeded")
def test_a_member_has_few_connections(row: Any, members: Any) -> None:
    async def tried() -> Any:
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(MAX_MEMBER_CONNECTIONS):
                await stack.enter_async_context(RawClient(members.relay_of("north")))
            said = await asyncio.to_thread(connection_errors, members.relay_of("north"))
            assert await asyncio.to_thread(connection_errors, members.relay_of("south")) == "", (
                "nobody else is kept out"
            )
            return said

    assert row.told in asyncio.run(tried()).lower()


@attack(
    "strangers that hold connections open: silent, in the middle of a handshake, or nameless after it",
    by="the relay: members' connections are counted by account, and a stranger's ends after 3 or 6 seconds",
    told=NOTHING,
)
def test_strangers_take_no_members_places(row: Any, members: Any) -> None:
    with Strangers(members.relay_of("north")) as strangers:
        # Twice what all members together may hold, so that one count for everybody would be used up.
        strangers.come(silent=100, halfway=50, nameless=50)
        for name in ("coordinator", "north", "south"):
            assert connection_errors(members.relay_of(name)) == "", f"{name} is kept out"
        assert strangers.are_cut_within(HANDSHAKE_SECONDS + AUTHENTICATION_SECONDS + 2)


@attack(
    "strangers that speak to the server's parser before they authenticate: long lines, deep JSON, commands of servers",
    by="the relay: the connection is cut at the first of them",
    told=NOTHING,
)
def test_what_strangers_say_before_connect_does_nothing(row: Any, members: Any, heard: _Heard) -> None:
    began, process = time.monotonic(), members.process
    with Strangers(members.relay_of("north")) as strangers:
        strangers.come(babbling=2 * len(GARBAGE))
        assert heard.while_("north", _saying("comity.ask.south")), "members talk meanwhile, and nothing else arrives"
        assert strangers.are_cut_within(HANDSHAKE_SECONDS + AUTHENTICATION_SECONDS + 2)
    assert members.process is process and process.poll() is None, f"it ended after {time.monotonic() - began:.0f} s"


@attack("a flood of subscriptions", by="the relay: the connection is cut", told="maximum subscriptions exceeded")
def test_a_member_has_few_subscriptions(row: Any, members: Any) -> None:
    async def tried() -> Any:
        async with RawClient(members.relay_of("north")) as one:
            for _ in range(MAX_MEMBER_CONNECTIONS + 1):
                with contextlib.suppress(Exception):
                    await one.allowed(one.client.subscribe("comity.ask.north"))
            return str(one.client.last_error).lower()

    assert row.told in asyncio.run(tried())


@attack("an oversized frame", by="the relay: the connection is cut, and its log says why", told=NOTHING)
def test_an_oversized_frame_is_not_carried(row: Any, members: Any) -> None:
    async def tried() -> Any:
        async with RawClient(members.relay_of("south")) as south, RawClient(members.relay_of("coordinator")) as asker:
            replies = await asker.hears("comity.reply.south")
            south.client._max_payload = 1 << 30
            await south.client.publish("comity.reply.south", bytes(MAX_FRAME_BYTES + 1))
            with contextlib.suppress(Exception):
                await south.client.flush(SOON)
            await asyncio.wait_for(south.closed.wait(), SOON)
            await asker.client.flush(SOON)
            return replies

    assert asyncio.run(tried()) == []
    assert "maximum payload" in (members.folder / "relay" / "relay.log").read_text().lower()
