"""Letters to several receivers: one box, relayed and journalled once, with the same refusals as letters to one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from comity.crypto.sealed import lock
from comity.entropy import fresh_seed
from comity.errors import Malformed, Refused
from comity.federation.codec import decode, encode
from comity.federation.consortium import COORDINATOR, EVERY_PARTY
from comity.federation.declaration import Declaration, Release
from comity.federation.forms import Array
from comity.federation.journal import Journal
from comity.federation.letters import Head
from comity.federation.protection import Public, Sealed
from comity.federation.protocol import Protocol, step

from .toy import begin, consortium, identity, setup

SIZE = 3000


@dataclass(frozen=True)
class Shout(Protocol):
    """Every party tells all others one long vector; what they heard comes back in clear."""

    name = "shout"

    def declare(self, who):
        def release(name, to, protection):
            return Release(name=name, source=EVERY_PARTY, to=to, protection=protection, form=Array((SIZE,)))

        return Declaration(
            (release("word", EVERY_PARTY, Sealed("a vector")), release("heard", COORDINATOR, Public("their sum"))),
            adversary="nobody",
        )

    @step()
    def tell(self, site: Any) -> None:
        others = [party for party in site.consortium.parties if party != site.party]
        site.send_all(others, "word", np.full(SIZE, float(ord(site.party[0]))))

    @step(gives=("heard",))
    def hear(self, site: Any) -> dict[str, Any]:
        return {"heard": sum(site.take("word").values())}


def told(folder=None, run="run-1"):
    parties, hosts = setup(Shout(), consortium(3, dropouts=0), folder, run=run)
    begin(parties)
    parties.ask(Shout.tell)
    return parties, hosts


def letter_from(parties, sender, to):
    """As the site would get it."""
    found = next(m for m in parties._memory.mail[to] if Head.of(m).sender == sender)
    box = parties.journal._box(parties.run, found["bulk"])
    return {**{name: part for name, part in found.items() if name != "bulk"}, "box": box}


def test_everybody_hears_everybody_else():
    parties, _ = told()
    heard = parties.ask(Shout.hear)
    first = {name: float(ord(name[0])) for name in parties.alive}
    for name, values in heard.items():
        np.testing.assert_array_equal(values["heard"], sum(first.values()) - first[name])


def test_a_box_is_journalled_once_and_sites_do_not_store_what_they_took(tmp_path):
    parties, hosts = told(tmp_path)
    parties.ask(Shout.hear)
    connection = parties.journal._connection
    boxes = [body for (body,) in connection.execute("select body from box")]
    assert len(boxes) == 3 and all(len(box) > 8 * SIZE for box in boxes)
    rows = connection.execute("select mail, reply from ask where path in ('tell[0]', 'hear[0]')").fetchall()
    assert not any(box in blob for box in boxes for row in rows for blob in row)
    for host in hosts.values():
        assert all(host.store.state("run-1", f"in:word/{name}") is None for name in parties.alive)


def test_an_ask_has_the_same_bytes_when_it_is_read_again_and_a_reply_those_that_were_signed(tmp_path):
    parties, hosts = told(tmp_path)
    parties.ask(Shout.hear)
    before, traced = dict(parties.journal.traffic(parties.study, "run-1")), parties.transcript
    again = Journal(tmp_path / "journal")
    assert dict(again.traffic(parties.study, "run-1")) == before
    for name, exchange in before["tell[0]"].items():
        assert hosts[name].store.replies("run-1")["tell[0]"] == hashlib.sha256(exchange.reply).hexdigest()
    for name, exchange in before["hear[0]"].items():
        boxes = [letter["box"] for letter in decode(exchange.message)[5]]
        assert len(boxes) == 2 and all(len(box) > 8 * SIZE for box in boxes), name
    parties.journal = again  # its digests are read from the file, not remembered
    assert parties.transcript == traced


def flipped(raw, at):
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


def another_key(letter, head):
    """What the coordinator can make by itself: its own value under its own key, sealed to the receiver."""
    key = fresh_seed()
    box = lock(key, encode(np.zeros(SIZE)), head.common)
    return {**letter, "box": box, "key": identity(head.to).public.seal(key, encode(["key in common", head.raw]))}


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("a bit of the box", "signature"),
        ("a bit of the key", "signature"),
        ("a truncated box", "signature"),
        ("another sender's box", "signature"),
        ("another receiver's key", "signature"),
        ("a key and a box of the coordinator's", "signature"),
        ("under another name", "signature"),
        ("another receiver", "sealed"),
        ("another receiver, with a new head", "signature"),
        ("reflected", "sealed"),
        ("another run", "sealed"),
        ("without the key", "signature"),
        ("a stranger", "stranger"),
    ],
)
def test_what_is_not_as_it_was_sent_is_refused(case, code):
    parties, _ = told()
    letter, to = letter_from(parties, "birch", "ash"), "ash"
    head = Head.of(letter)

    def readdressed(**changes):
        return Head(**{**head.__dict__, **changes}).raw

    if case == "a bit of the box":
        letter["box"] = flipped(letter["box"], 9)
    elif case == "a bit of the key":
        letter["key"] = flipped(letter["key"], 9)
    elif case == "a truncated box":
        letter["box"] = letter["box"][:-1]
    elif case == "another sender's box":
        letter["box"] = letter_from(parties, "cedar", "ash")["box"]
    elif case == "another receiver's key":
        letter["key"] = letter_from(parties, "birch", "cedar")["key"]
    elif case == "a key and a box of the coordinator's":
        letter = another_key(letter, head)
    elif case == "under another name":
        letter["head"] = readdressed(name="heard")
    elif case == "another receiver":
        to = "cedar"
    elif case == "another receiver, with a new head":
        to, letter["head"] = "cedar", readdressed(to="cedar")
    elif case == "reflected":
        to = "birch"
    elif case == "another run":
        parties, _ = told(run="run-2")
    elif case == "without the key":
        del letter["key"]
    elif case == "a stranger":
        letter["head"] = readdressed(sender="mallory")
    parties._memory.mail[to] = [letter]
    with pytest.raises(Refused) as refusal:
        parties.ask(Shout.hear, to=[to])
    assert refusal.value.code == code


def test_a_letter_whose_box_never_came_is_not_relayed():
    parties, _ = setup(Shout(), consortium(3, dropouts=0))
    begin(parties)
    with pytest.raises(Malformed, match="without its box"):
        parties.journal.open("run-1", "tell[0]", encode({}), {"ash": (encode({}), encode([]))})
        mail = [{"to": "birch", "head": b"", "key": b"", "bulk": bytes(32), "signature": b""}]
        parties.journal.got("run-1", "tell[0]", {"ash": encode({"ok": {}, "mail": mail})}, decided=True)
        parties.ask(Shout.tell)


def test_what_is_not_declared_as_sealed_is_not_sent():
    class Loud(Shout):
        def declare(self, who):
            word, heard = super().declare(who).releases
            open_word = Release(
                name="word", source=EVERY_PARTY, to=EVERY_PARTY, protection=Public("in clear"), form=word.form
            )
            return Declaration((open_word, heard), adversary="nobody")

    parties, _ = setup(Loud(), consortium(3, dropouts=0))
    begin(parties)
    with pytest.raises(Refused) as refusal:
        parties.ask(Loud.tell)
    assert refusal.value.code == "undeclared"
