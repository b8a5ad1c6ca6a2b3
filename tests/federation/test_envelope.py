"""Altered bytes anywhere in any message are refused, and so is every message that is out of its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from comity.errors import Malformed, SiteLost, StudyError
from comity.federation.coordinator.lifecycle import run
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.messages.codec import decode
from comity.federation.messages.signatures import SIGNATURE_BYTES, sign_reply, verify_ask, verify_reply
from tests.support.asks import sign_ask, write_ask
from tests.support.channels import LossyChannel
from tests.support.consortia import STUDY, make_consortium, make_identity
from tests.support.noise import NoNoise
from tests.support.rounds import Rounds, host_party, set_up_run


def recorded() -> Any:
    """Every message of a whole run with secure sums, with the reply it got."""
    parties, hosts = set_up_run(noise=NoNoise())
    crossed: list[Any] = []

    class Recorder(LossyChannel):
        def carry(self, messages: Any) -> Any:
            replies = super().carry(messages)
            crossed.extend((party, message, replies[party]) for party, message in messages.items())
            return replies

    parties.channel = Recorder(hosts)
    run(parties)
    return hosts, crossed


def places(size: Any, generator: Any) -> list[Any]:
    """Bits to flip: in the first and last bytes, and at random in between."""
    inside = generator.integers(0, size, 4)
    return [(at, int(generator.integers(0, 8))) for at in (0, 1, size - 1, size - 65, *inside)]


def flipped(raw: Any, at: Any, bit: Any) -> bytes:
    out = bytearray(raw)
    out[at] ^= 1 << bit
    return bytes(out)


def test_a_flipped_bit_anywhere_in_any_ask_of_a_run_is_refused() -> None:
    hosts, crossed = recorded()
    generator = np.random.default_rng(5)
    for party, message, _ in crossed:
        for at, bit in places(len(message), generator):
            altered = flipped(message, at, bit)
            answered = hosts[party].answer(altered).reply
            reply = decode(verify_reply(make_identity(party).public, party, altered, answered))
            assert reply["refused"] == "signature", (party, at)


def test_a_flipped_bit_anywhere_in_any_reply_of_a_run_is_refused() -> None:
    _, crossed = recorded()
    generator = np.random.default_rng(6)
    for party, message, reply in crossed:
        assert decode(verify_reply(make_identity(party).public, party, message, reply))
        for at, bit in places(len(reply), generator):
            with pytest.raises(Malformed):
                verify_reply(make_identity(party).public, party, message, flipped(reply, at, bit))


class Corrupting(LossyChannel):
    """Alters one message to or from ash, once."""

    def __init__(self, hosts: Any, where: Any) -> None:
        super().__init__(hosts)
        self.where, self.faults = where, [True]

    def carry(self, messages: Any) -> Any:
        hit = self.faults and b"average" in next(iter(messages.values()))
        if hit:
            self.faults.clear()
        if hit and self.where == "ask":
            altered = {**messages, "ash": flipped(messages["ash"], 30, 2)}
            return {party: self.hosts[party].answer(message).reply for party, message in altered.items()}
        replies = super().carry(messages)
        if hit:
            replies["ash"] = flipped(replies["ash"], 9, 0)
        return replies


@pytest.mark.parametrize("where", ["ask", "reply"])
def test_a_run_stops_at_an_altered_message_and_goes_on_when_it_is_repeated_unaltered(where: str) -> None:
    consortium = make_consortium(dropouts=0)
    parties, hosts = set_up_run(consortium=consortium, noise=NoNoise())
    parties.channel = Corrupting(hosts, where)
    with pytest.raises(SiteLost, match=r"ash .*altered on the way"):
        run(parties)
    resumed, _ = set_up_run(consortium=consortium, noise=NoNoise(), hosts=hosts)
    resumed.journal = parties.journal
    plain, _ = set_up_run(consortium=consortium, noise=NoNoise())
    np.testing.assert_array_equal(run(resumed)["result"], run(plain)["result"])


@pytest.mark.parametrize("where", ["ask", "reply"])
def test_an_altered_message_costs_a_run_of_many_no_more_than_one_party(where: str) -> None:
    parties, hosts = set_up_run(noise=NoNoise())
    parties.channel = Corrupting(hosts, where)
    run(parties)
    assert set(parties.lost) == {"ash"} and "altered on the way" in parties.lost["ash"]


def test_each_way_of_moving_a_message_is_refused() -> None:
    ask = write_ask("run.begin[0]")
    raw = sign_ask(make_identity(COORDINATOR), "ash", ask)
    one, other = (host_party(Rounds(), make_consortium(), name) for name in ("ash", "birch"))
    good = one.answer(raw).reply
    keys = {name: make_identity(name).public for name in ("ash", "birch", COORDINATOR)}
    assert "ok" in decode(verify_reply(keys["ash"], "ash", raw, good))

    def refused(site: Any, message: Any) -> Any:
        return decode(site.answer(message).reply[:-SIGNATURE_BYTES])["refused"]

    assert refused(other, raw) == "signature", "an ask for another site"
    assert refused(one, raw[:-1]) == "signature", "a truncated ask"
    assert refused(one, raw[:10]) == "signature" and refused(one, b"") == "signature"
    assert refused(one, raw + b"\0") == "signature", "a longer ask"
    assert refused(one, good) == "signature", "a reply reflected as an ask"
    assert refused(one, sign_ask(make_identity("birch"), "ash", ask)) == "signature", "an ask of a party"
    assert refused(one, sign_ask(make_identity("stranger"), "ash", ask)) == "signature", "an ask of a stranger"
    with pytest.raises(Malformed):
        verify_ask(keys[COORDINATOR], "ash", good)
    later = sign_ask(make_identity(COORDINATOR), "ash", write_ask("average[0]"))
    with pytest.raises(Malformed):
        verify_reply(keys["ash"], "ash", later, good)
    with pytest.raises(Malformed):
        verify_reply(keys["birch"], "birch", raw, good)
    with pytest.raises(Malformed):
        verify_reply(keys["ash"], "ash", raw, sign_reply(make_identity("birch"), "ash", raw, good[:-SIGNATURE_BYTES]))


def test_a_reply_from_whoever_was_not_asked_is_not_read() -> None:
    parties, hosts = set_up_run(noise=NoNoise())

    class Intruding(LossyChannel):
        def carry(self, messages: Any) -> Any:
            replies = super().carry(messages)
            return {**replies, "stranger": next(iter(replies.values()))}

    parties.channel = Intruding(hosts)
    plain, _ = set_up_run(noise=NoNoise())
    np.testing.assert_array_equal(run(parties)["result"], run(plain)["result"])
    assert not any("stranger" in exchanges for _, exchanges in parties.journal.traffic(STUDY, "run-1"))


def test_a_site_whose_roster_has_no_coordinator_answers_nobody() -> None:
    consortium = make_consortium()
    roster = {name: key for name, key in consortium.roster.items() if name != COORDINATOR}
    one = host_party(Rounds(), replace(consortium, roster=roster), "ash")
    raw = sign_ask(make_identity(COORDINATOR), "ash", write_ask("run.begin[0]"))
    assert decode(one.answer(raw).reply[:-SIGNATURE_BYTES]) == {"refused": "stranger", "key": ""}


def test_no_party_is_called_like_a_role() -> None:
    with pytest.raises(StudyError, match="'coordinator'"):
        replace(make_consortium(), parties=("ash", COORDINATOR))


def test_two_participants_can_not_have_one_key() -> None:
    """A coordinator that is also a party would see what neither may see alone."""
    consortium = make_consortium()
    with pytest.raises(StudyError, match="the same key"):
        replace(consortium, roster={**consortium.roster, COORDINATOR: consortium.roster["ash"]})
