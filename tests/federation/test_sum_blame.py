"""One bad party does not end a sum of many: it is lost like one that is silent, and the right one is blamed."""

from __future__ import annotations

import secrets
from typing import Any, cast

import numpy as np
import pytest

from comity.crypto.sealing import PublicIdentity
from comity.errors import ComityError, SiteLost, Stopped
from comity.federation.coordinator.lifecycle import begin
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.letters import Head, seal
from comity.federation.messages.signatures import sign_reply
from comity.federation.sum.coordinator import _members
from tests.support.asks import path_of
from tests.support.channels import LossyChannel
from tests.support.consortia import NAMES, make_consortium, make_identity
from tests.support.noise import NoNoise
from tests.support.rounds import Rounds, set_up_run


class Tampering(LossyChannel):
    """A party that signs something else than its site would: `change` gets and gives the values of its reply."""

    def __init__(self, hosts: Any, party: Any, path: Any, change: Any, lose: Any = ()) -> None:
        super().__init__(hosts, lose)
        self.party, self.path, self.change = party, path, change

    def carry(self, messages: Any) -> Any:
        replies = super().carry(messages)
        if self.party in messages and path_of(messages[self.party]) == self.path:
            reply = decode(replies[self.party][:-64])
            self.change(reply)
            raw = messages[self.party]
            replies[self.party] = sign_reply(make_identity(self.party), self.party, raw, encode(reply))
        return replies


def summed(path: Any, change: Any, party: str = "cedar", size: Any = 5, dropouts: int = 1, lose: Any = ()) -> Any:
    parties, hosts = set_up_run(consortium=make_consortium(size, dropouts=dropouts), noise=NoNoise())
    parties.channel = Tampering(hosts, party, path, change, lose)
    begin(parties)
    total = parties.sum(Rounds().average)
    kept = {name: host.store.state("run-1", "out:mean/0") for name, host in hosts.items()}
    units = {name: decode(raw) for name, raw in kept.items() if raw is not None}
    grid = parties.declaration["mean"].scale(parties.consortium).grid
    expected = sum(units[name] for name in cast(Any, total.names))
    np.testing.assert_array_equal(np.rint(total.value / grid).astype(int), expected)
    return parties, total


def values_of(reply: Any) -> Any:
    return reply["ok"]


def fewer_holders(reply: Any) -> None:
    values_of(reply)["holders"].pop()


def no_will(reply: Any) -> None:
    values_of(reply)["recovery_seeds"].popitem()


def other_signature(name: Any) -> Any:
    def change(reply: Any) -> None:
        values_of(reply)[name] = make_identity("cedar").sign(b"something else")

    return change


def other_form(reply: Any) -> None:
    values_of(reply)["mean"] = np.zeros(3, "<u8")


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("sum.meet[0]", no_will),
        ("sum.enlist[0]", other_signature("enlisted")),
        ("average[0]", other_form),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_a_party_sends_is_checked_before_it_counts(path: str, change: Any) -> None:
    parties, total = summed(path, change)
    assert "cedar" not in parties.alive and "cedar" not in total.names and total.parties == 4


def test_a_party_that_picks_fewer_holders_is_lost() -> None:
    names = tuple(f"p{number:02}" for number in range(41))
    parties, total = summed("sum.advertise[0]", fewer_holders, "p07", names, dropouts=4)
    assert "p07" not in parties.alive and total.parties == 40


def test_a_consent_that_does_not_verify_is_no_consent() -> None:
    names = (*NAMES, "fir", "gum", "holly")
    lose = [("ash", "average[0]")]
    parties, total = summed("sum.agree[mean/0]", other_signature("consent"), size=names, dropouts=2, lose=lose)
    assert "cedar" not in parties.alive and total.parties == 7  # its vector had arrived


def test_a_share_that_is_missing_or_of_another_party_counts_as_no_answer() -> None:
    def missing(reply: Any) -> None:
        values_of(reply)["opening"]["self"].pop("ash")

    def both(reply: Any) -> None:
        values_of(reply)["opening"]["recovery"] = dict(values_of(reply)["opening"]["self"])

    for change in (missing, both):
        parties, total = summed("sum.unmask[mean/0]", change)
        assert "cedar" not in parties.alive and total.parties == 5


@pytest.mark.parametrize("party", ["ash", "cedar", "elm"])
def test_a_wrong_share_is_left_out_and_its_giver_is_lost(party: str) -> None:
    def garbage(reply: Any) -> None:
        shares = values_of(reply)["opening"]["self"]
        for name in shares:
            shares[name] = secrets.token_bytes(66)

    parties, total = summed("sum.unmask[mean/0]", garbage, party=party)
    assert total.parties == 5 and set(total.names) - set(parties.alive) == {party}


def test_a_dealer_of_wrong_shares_is_named_since_nobody_can_unmask_it() -> None:
    """All shares of its self mask that the others got are those of another secret: no other party is to blame."""
    parties, hosts = set_up_run(noise=NoNoise())

    def wrong(reply: Any) -> None:
        letters = []
        for letter in reply["mail"]:
            head = Head.of(letter)
            key = PublicIdentity.from_sealing(parties.run_keys[head.to]["key"])
            letters.append(seal(make_identity("cedar"), key, head, encode({"self": {}, "recovery": {}})))
        reply["mail"] = letters

    parties.channel = Tampering(hosts, "cedar", "sum.deal[0]", wrong)
    begin(parties)
    total = parties.sum(Rounds().average)
    # Its holders found out when they met: it is no member, and they are.
    assert total.names == ("ash", "birch", "doum", "elm")


def test_shares_that_fit_no_secret_stop_the_sum_with_the_dealers_name() -> None:
    def garbage_by_all(reply: Any) -> None:
        values_of(reply)["opening"]["self"]["birch"] = secrets.token_bytes(66)

    parties, hosts = set_up_run(noise=NoNoise())
    channel = parties.channel = Tampering(hosts, "", "sum.unmask[mean/0]", garbage_by_all)

    def carry(messages: Any) -> dict[str, bytes]:
        replies = LossyChannel.carry(channel, messages)
        for party, raw in messages.items():
            if path_of(raw) == "sum.unmask[mean/0]":
                reply = decode(replies[party][:-64])
                garbage_by_all(reply)
                replies[party] = sign_reply(make_identity(party), party, raw, encode(reply))
        return replies

    cast(Any, channel).carry = carry
    begin(parties)
    with pytest.raises(Stopped, match="birch's secret"):
        parties.sum(Rounds().average)


def test_more_bad_parties_than_may_drop_out_stop_the_run_without_a_foreign_error() -> None:
    with pytest.raises(ComityError):
        summed("average[0]", other_form, dropouts=0)


def test_quarrels_put_out_whoever_has_most_of_them() -> None:
    consortium = make_consortium(5, dropouts=1)
    # Two name one dealer: it goes. One names two others: it goes. One against one: the one who was named.
    assert _members({"ash": ["elm"], "birch": ["elm"], "cedar": [], "doum": [], "elm": []}, consortium) == [
        "ash",
        "birch",
        "cedar",
        "doum",
    ]
    assert "ash" not in _members({"ash": ["elm", "doum"], "birch": [], "cedar": [], "doum": [], "elm": []}, consortium)
    assert "elm" not in _members({"ash": ["elm"], "birch": [], "cedar": [], "doum": [], "elm": []}, consortium)
    # A party that did not meet is no quarrel.
    assert len(_members({"ash": ["elm"], "birch": [], "cedar": [], "doum": []}, consortium)) == 4
    with pytest.raises(SiteLost):
        _members({"ash": ["birch"], "cedar": ["doum"], "birch": [], "doum": [], "elm": []}, consortium)
