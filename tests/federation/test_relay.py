"""What the coordinator relays and writes down: mail under its own head, boxes for one reader, replies in time."""

from __future__ import annotations

from typing import Any

import pytest

from comity.errors import Malformed
from comity.federation.coordinator.journal import Journal, PartyAsk
from comity.federation.coordinator.lifecycle import run
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Public, Sealed
from comity.federation.declare.release import Count
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.letters import Head, open_values, seal_values
from comity.federation.messages.signatures import SIGNATURE_BYTES, sign_reply
from tests.support.asks import path_of
from tests.support.channels import LossyChannel
from tests.support.consortia import STUDY, make_identity
from tests.support.noise import NoNoise
from tests.support.rounds import Rounds, set_up_run

DEALT = "sum.deal[0]"
ANOTHER = {"study": 0, "run": 1, "path": 2, "sender": 3}


class Forging(LossyChannel):
    """One party writes another place or sender on its letters."""

    def __init__(self, hosts: Any, place: Any, value: Any) -> None:
        super().__init__(hosts)
        self.place, self.value = place, value

    def carry(self, messages: Any) -> Any:
        replies = super().carry(messages)
        if path_of(next(iter(messages.values()))) == DEALT:
            reply = decode(replies["birch"][:-SIGNATURE_BYTES])
            for letter in reply["mail"]:
                head = decode(letter["head"])
                head[self.place] = self.value
                letter["head"] = encode(head)
            replies["birch"] = sign_reply(make_identity("birch"), "birch", messages["birch"], encode(reply))
        return replies


@pytest.mark.parametrize(
    ("place", "value"),
    [("study", "6" * 64), ("run", "run-2"), ("path", "sum.advertise[0]"), ("sender", "cedar")],
)
def test_mail_that_names_another_place_or_sender_is_not_relayed(place: str, value: Any) -> None:
    parties, hosts = set_up_run(Rounds(rounds=0), noise=NoNoise())
    parties.channel = Forging(hosts, ANOTHER[place], value)
    run(parties)
    assert list(parties.lost) == ["birch"]
    assert DEALT in parties.lost["birch"] and "another head" in parties.lost["birch"]


DECLARED = Declaration(
    (
        Release(name="hand", source=COORDINATOR, to=EVERY_PARTY, protection=Sealed("a hand"), form=Count(9)),
        Release(name="rows", source=COORDINATOR, to=EVERY_PARTY, protection=Public("a size"), form=Count(9)),
    ),
    adversary="whoever records the wire",
)


def head(path: str = "blind[0]", to: str = "ash") -> Any:
    return lambda name: Head(STUDY, "run-1", path, COORDINATOR, to, name)


def test_a_sealed_value_crosses_in_a_box_that_opens_in_its_place_alone() -> None:
    crossed = seal_values({"hand": {"seed": 7}, "rows": 3}, DECLARED, make_identity("ash").public, head())
    assert crossed["rows"] == 3 and type(crossed["hand"]) is bytes
    assert open_values(crossed, DECLARED, make_identity("ash"), head()) == {"hand": {"seed": 7}, "rows": 3}
    for keys, where in (
        (make_identity("birch"), head()),
        (make_identity("ash"), head(path="blind[1]")),
        (make_identity("ash"), head(to="birch")),
    ):
        with pytest.raises(Malformed):
            open_values(crossed, DECLARED, keys, where)


@pytest.mark.parametrize("clear", [{"seed": 7}, 7, [7], None, "seed"])
def test_a_sealed_value_that_crossed_in_clear_is_refused(clear: Any) -> None:
    with pytest.raises(Malformed, match="must arrive in a sealed box"):
        open_values({"hand": clear}, DECLARED, make_identity("ash"), head())


def test_what_comes_after_an_ask_was_decided_is_lost_for_good() -> None:
    journal = Journal()
    own = PartyAsk(encode({}), encode([]), [])
    journal.open("run-1", "average[0]", encode({}), {"ash": own, "elm": own}.items())
    journal.record("run-1", "average[0]", {"ash": b"in time"}, decided=True, why={"elm": "no answer"})
    journal.record("run-1", "average[0]", {"elm": b"late"}, decided=True)
    assert journal.replies("run-1", "average[0]") == {"ash": b"in time", "elm": None}
    assert journal.faults("run-1", "average[0]") == {"elm": "no answer"}


def test_what_comes_before_an_ask_was_decided_counts_and_stays() -> None:
    journal = Journal()
    own = PartyAsk(encode({}), encode([]), [])
    journal.open("run-1", "average[0]", encode({}), {"ash": own, "elm": own}.items())
    journal.record("run-1", "average[0]", {"ash": b"first"}, decided=False)
    journal.record("run-1", "average[0]", {"ash": b"second", "elm": b"later"}, decided=True)
    assert journal.replies("run-1", "average[0]") == {"ash": b"first", "elm": b"later"}
