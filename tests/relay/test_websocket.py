"""Members that dial by websocket: the same certificates, the same rules, the same channel."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comity.crypto import key_file
from comity.errors import BadInput
from comity.relay import address, membership
from comity.relay.address import RelayAddress
from comity.relay.roster import Roster
from comity.relay.server import AUTHENTICATION_SECONDS, HANDSHAKE_SECONDS
from tests.federation.channel_conformance import ChannelConformance
from tests.support.relays import Loopback, NatsLine, needs_server

from .relay_client import RawClient, connection_errors, is_admitted
from .strangers import Strangers
from .test_rules_of_the_relay import (
    test_a_member_has_few_subscriptions_and_connections,
    test_an_oversized_frame_ends_its_connection,
    test_nobody_listens_where_it_may_not,
    test_nobody_speaks_where_it_may_not,
    test_what_is_refused_does_not_arrive_and_what_is_allowed_does,
)

pytestmark = [needs_server]

# The rules of the relay again, with this module's members, who come by websocket.
RULES = (
    test_a_member_has_few_subscriptions_and_connections,
    test_an_oversized_frame_ends_its_connection,
    test_nobody_listens_where_it_may_not,
    test_nobody_speaks_where_it_may_not,
    test_what_is_refused_does_not_arrive_and_what_is_allowed_does,
)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    made = Loopback.make(tmp_path_factory.mktemp("web"), ["north", "south"], websocket=True)
    made.start()
    yield made
    made.stop()


def test_members_meet_whichever_way_they_dial(two: Any) -> None:
    async def met() -> None:
        north = two.relay_of("north")
        plain = replace(two.relay_of("coordinator"), address=Roster.load(two.consortium).address)
        assert north.is_websocket and not plain.is_websocket
        async with RawClient(plain) as asker, RawClient(north) as one:
            asks = await one.hears("comity.ask.north")
            await asker.client.publish("comity.ask.north", b"asked")
            await asker.client.flush(5)
            while not asks:
                await asyncio.sleep(0.005)
            assert asks == [b"asked"]

    asyncio.run(asyncio.wait_for(met(), 20))


def test_a_websocket_takes_no_stranger_no_older_tls_and_no_missing_key(two: Any, tmp_path: Path) -> None:
    north = two.relay_of("north")
    assert is_admitted(north)
    stranger = two.stranger(tmp_path / "x")
    assert stranger.is_websocket and "authorization violation" in connection_errors(stranger).lower()
    assert "authorization violation" in connection_errors(north, has_key=False).lower()

    older = north.tls_context()
    older.minimum_version, older.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    assert "protocol version" in connection_errors(north, tls=older).lower()

    other = Loopback.make(tmp_path / "other", ["north"], websocket=True)
    assert not is_admitted(north, tls=other.relay_of("north").tls_context()), "another relay's certificate is pinned"


def test_strangers_take_no_members_places_at_either_port(two: Any) -> None:
    """Counted together, the two ports would be used up from either."""
    web = two.relay_of("north")
    plain = replace(web, address=Roster.load(two.consortium).address)
    with Strangers(web) as by_web, Strangers(plain) as by_tls:
        by_web.come(silent=60, halfway=30, nameless=20, babbling=11)
        by_tls.come(silent=60, halfway=30, nameless=20, babbling=11)
        assert connection_errors(web) == "" and connection_errors(plain) == ""
        assert connection_errors(two.relay_of("south")) == "" and connection_errors(two.relay_of("coordinator")) == ""
        end = HANDSHAKE_SECONDS + AUTHENTICATION_SECONDS + 2
        assert by_web.are_cut_within(end) and by_tls.are_cut_within(end)


def test_a_revoked_member_is_cut_off_its_websocket(tmp_path: Path) -> None:
    made = Loopback.make(tmp_path, ["north", "south"], websocket=True)
    made.start()
    try:

        async def cut() -> None:
            async with RawClient(made.relay_of("north")) as one:
                assert membership.revoke_member(made.consortium, "north")
                await asyncio.wait_for(one.closed.wait(), 10)

        asyncio.run(cut())
        assert not is_admitted(made.relay_of("north"))
        assert is_admitted(made.relay_of("south"))
    finally:
        made.stop()


def test_where_there_are_no_websockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    membership.create_consortium(one, address="relay.example.org")
    assert "websocket" not in (one / "roster.toml").read_text() and not (one / "consortium-websocket.toml").exists()
    with pytest.raises(BadInput, match="this relay takes no websockets, and a running relay can't enable them"):
        membership.create_consortium(one, address="relay.example.org", websocket=443)
    with pytest.raises(BadInput, match="the relay listens at this port already"):
        membership.create_consortium(two, address="relay.example.org:443", websocket=443)

    membership.create_consortium(two, address="relay.example.org", websocket=443)
    keys = tmp_path / "north.keys"
    key_file.create(keys)
    web = RelayAddress.load(two / "consortium-websocket.toml", keys)
    assert web.address == "wss://relay.example.org:443"
    assert RelayAddress.load(two / "consortium.toml", keys).address == "tls://relay.example.org:4222"
    monkeypatch.setattr(address, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="a websocket needs the extra deploy-websocket"):
        web.check_files()


@pytest.fixture(scope="session")
def web_loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    names = ("ash", "birch", "cedar", "doum", *(f"site-{number}" for number in range(40)))
    made = Loopback.make(tmp_path_factory.mktemp("web-consortium"), names, websocket=True)
    made.start()
    yield made
    made.stop()


@pytest.mark.deploy
class TestOverWebsockets(ChannelConformance):
    @pytest.fixture
    def line(self, web_loopback: Any) -> Iterator[Any]:
        made = NatsLine(web_loopback)
        yield made
        made.end()
