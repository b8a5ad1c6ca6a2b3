"""Letters to several receivers: one box, relayed and journalled once, with the same refusals as letters to one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.crypto.sealing import PublicIdentity, lock
from comity.entropy import fresh_seed
from comity.errors import Refused, SiteLost
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import begin
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Public, Sealed
from comity.federation.declare.release import Array, Blob
from comity.federation.messages.ask import Ask
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.letters import Head, seal
from comity.federation.messages.signatures import sign_reply
from comity.federation.protocol import Protocol, step
from tests.support.asks import answer_ask, path_of, write_ask
from tests.support.channels import LossyChannel
from tests.support.consortia import make_consortium, make_identity
from tests.support.rounds import set_up_run

SIZE = 3000


@dataclass(frozen=True)
class Shout(Protocol):
    """Every party tells all others one long vector; what they heard comes back in clear."""

    name = "shout"

    def declare(self, consortium: Any) -> Declaration:
        def release(name: Any, to: Any, protection: Any) -> Release:
            return Release(name=name, source=EVERY_PARTY, to=to, protection=protection, form=Array((SIZE,)))

        names = Release(
            name="names", source=EVERY_PARTY, to=COORDINATOR, protection=Public("who was heard"), form=Blob(999)
        )
        word, heard = release("word", EVERY_PARTY, Sealed("a vector")), release("heard", COORDINATOR, Public("a sum"))
        return Declaration((word, heard, names), adversary="nobody")

    @step(times=9)
    def tell(self, site: Any) -> None:
        others = [party for party in site.consortium.parties if party != site.party]
        site.send_all(others, "word", np.full(SIZE, float(ord(site.party[0]))))

    @step(gives=("names",), times=9)
    def count(self, site: Any) -> dict[str, Any]:
        return {"names": encode(sorted(site.received("word")))}

    @step(gives=("heard",))
    def hear(self, site: Any) -> dict[str, Any]:
        return {"heard": sum(site.take("word").values())}


def told(folder: Any = None, run: str = "run-1") -> Any:
    parties, hosts = set_up_run(Shout(), make_consortium(3, dropouts=0), folder, run=run)
    begin(parties)
    parties.ask(Shout.tell)
    return parties, hosts


def letter_from(parties: Any, sender: Any, to: Any) -> dict[Any, Any]:
    """As the site would get it."""
    found = next(m for m in parties._memory.mail[to] if Head.of(m).sender == sender)
    box = parties.journal._box(parties.run, found["bulk"])
    return {**{name: part for name, part in found.items() if name != "bulk"}, "box": box}


def test_everybody_hears_everybody_else() -> None:
    parties, _ = told()
    heard = parties.ask(Shout.hear)
    first = {name: float(ord(name[0])) for name in parties.alive}
    for name, values in heard.items():
        np.testing.assert_array_equal(values["heard"], sum(first.values()) - first[name])


def test_a_box_is_journalled_once_and_sites_do_not_store_what_they_took(tmp_path: Path) -> None:
    parties, hosts = told(tmp_path)
    parties.ask(Shout.hear)
    connection = parties.journal._connection
    boxes = [body for (body,) in connection.execute("select body from box")]
    assert len(boxes) == 3 and all(len(box) > 8 * SIZE for box in boxes)
    rows = connection.execute("select mail, reply from ask where path in ('tell[0]', 'hear[0]')").fetchall()
    assert not any(box in blob for box in boxes for row in rows for blob in row)
    for host in hosts.values():
        assert all(host.store.state("run-1", f"in:word:{name}") is None for name in parties.alive)


def test_an_ask_has_the_same_bytes_when_it_is_read_again_and_a_reply_those_that_were_signed(tmp_path: Path) -> None:
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


def flipped(raw: Any, at: Any) -> Any:
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


def another_key(letter: Any, head: Any, receiver: Any) -> dict[Any, Any]:
    """What the coordinator can make by itself: its own value under its own key, sealed to the receiver."""
    key = fresh_seed()
    box = lock(key, encode(np.zeros(SIZE)), head.common)
    return {**letter, "box": box, "key": receiver.seal(key, encode(["key in common", head.raw]))}


CASES = {
    # Where a letter belongs is for the coordinator to know: it is refused.
    "another receiver": "sealed",
    "reflected": "sealed",
    "another run": "sealed",
    "a stranger": "stranger",
    # What a bad sender can do to a letter is as good as no letter: else it could end the turns of others.
    "a bit of the box": None,
    "a bit of the key": None,
    "a truncated box": None,
    "another sender's box": None,
    "another receiver's key": None,
    "a key and a box of the coordinator's": None,
    "under another name": None,
    "from a step that does not write": None,
    "another receiver, with a new head": None,
    "without the key": None,
}


@pytest.mark.parametrize(("case", "code"), CASES.items())
def test_what_is_not_as_it_was_sent_does_not_arrive(case: Any, code: Any) -> None:
    parties, hosts = told()
    letter, to = letter_from(parties, "birch", "ash"), "ash"
    head = Head.of(letter)

    def readdressed(**changes: Any) -> bytes:
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
        ash = PublicIdentity.from_sealing(parties.run_keys["ash"]["key"])
        letter = another_key(letter, head, ash)
    elif case == "under another name":
        letter["head"] = readdressed(name="heard")
    elif case == "from a step that does not write":
        letter["head"] = readdressed(path=".tell[0]")
    elif case == "another receiver":
        to = "cedar"
    elif case == "another receiver, with a new head":
        to, letter["head"] = "cedar", readdressed(to="cedar")
    elif case == "reflected":
        to = "birch"
    elif case == "another run":
        parties, hosts = told(run="run-2")
    elif case == "without the key":
        del letter["key"]
    elif case == "a stranger":
        letter["head"] = readdressed(sender="mallory")
    if code is None:
        assert heard(parties, hosts, to, [letter]) == {}
        assert heard(parties, hosts, "ash", [letter_from(parties, "birch", "ash")]).keys() == {"birch"}
    else:
        assert heard(parties, hosts, to, [letter]) == code


def heard(parties: Any, hosts: Any, to: Any, mail: Any) -> Any:
    """Who is heard at a site that gets this mail, or the code of its refusal; the site is asked and forgets."""
    nonce = parties.journal.nonce(parties.run)
    reply = decode(answer_ask(hosts[to], write_ask("count[0]", run=parties.run, nonce=nonce, mail=mail)))
    if "refused" in reply:
        return reply["refused"]
    with hosts[to].store.ledger.transaction() as transaction:
        where = "where run = ? and owner = ?", (parties.run, hosts[to].store.ledger.owner)
        transaction.connection.execute(f"delete from reply {where[0]} and path = 'count[0]'", where[1])
        transaction.connection.execute(f"delete from state {where[0]} and name glob '*word*'", where[1])
    return dict.fromkeys(name for name in decode(reply["ok"]["names"]))


def test_a_letter_whose_box_never_came_is_not_relayed() -> None:
    parties, hosts = set_up_run(Shout(), make_consortium(3, dropouts=0))
    begin(parties)

    class Withholding(LossyChannel):
        def carry(self, messages: Any) -> Any:
            replies = super().carry(messages)
            if path_of(messages["ash"]) == "tell[0]":
                reply = decode(replies["ash"][:-64])
                replies["ash"] = sign_reply(
                    make_identity("ash"), "ash", messages["ash"], encode({**reply, "boxes": []})
                )
            return replies

    parties.channel = Withholding(hosts)
    with pytest.raises(SiteLost, match=r"ash .*letter without its box"):
        parties.ask(Shout.tell)


# The first letter stays.


def letters_of(parties: Any, hosts: Any, sender: Any, to: Any, values: Any) -> list[dict[str, Any]]:
    """Letters that a party wrote and signed itself, each in another ask."""
    out = []
    receiver = PublicIdentity.from_sealing(parties.run_keys[to]["key"])
    for number, value in enumerate(values):
        head = Head(parties.study, parties.run, f"tell[{number}]", sender, to, "word")
        out.append(seal(make_identity(sender), receiver, head, encode(value)))
    return out


def test_a_later_letter_replaces_nothing() -> None:
    """A sender that says one thing before a step and another after it is heard with the first."""
    parties, hosts = set_up_run(Shout(), make_consortium(3, dropouts=0))
    begin(parties)
    first, second = letters_of(parties, hosts, "birch", "ash", [np.ones(SIZE), np.zeros(SIZE)])
    nonce = parties.journal.nonce("run-1")

    def asked(path: Any, mail: Any) -> Any:
        return decode(answer_ask(hosts["ash"], write_ask(path, nonce=nonce, mail=mail)))

    assert "ok" in asked("count[0]", [first])
    assert "ok" in asked("count[1]", [second, first])
    np.testing.assert_array_equal(asked("hear[0]", [second])["ok"]["heard"], np.ones(SIZE))
    # What was taken does not come again; the next letter does.
    assert decode(asked("count[2]", [first])["ok"]["names"]) == []
    assert decode(asked("count[3]", [second])["ok"]["names"]) == ["birch"]


@dataclass(frozen=True)
class Listing(Shout):
    """Lists the letter of its part, as plans need, and has a value in clear between parties."""

    parts = {"part": Shout()}

    def declare(self, consortium: Any) -> Declaration:
        word, heard, names = super().declare(consortium).releases
        notice = Release(
            name="notice", source=EVERY_PARTY, to=EVERY_PARTY, protection=Public("in clear"), form=word.form
        )
        return Declaration((word, heard, names, notice), adversary="nobody")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("part.tell[9]", "word"),
        ("part.nothing[0]", "word"),
        ("tell[0]", "word"),
        ("tell[0]", "notice"),
        ("part", "word"),
    ],
)
def test_a_letter_comes_from_a_step_of_the_part_that_declares_it(path: str, name: str) -> None:
    """Even if its sender signed it: what is read under a name was written under it."""
    parties, hosts = set_up_run(Listing(), make_consortium(3, dropouts=0))
    begin(parties)
    receiver = PublicIdentity.from_sealing(parties.run_keys["ash"]["key"])
    nonce = parties.journal.nonce("run-1")

    def held(number: Any, at: Any, called: Any) -> bool:
        head = Head(parties.study, "run-1", at, "birch", "ash", called)
        letter = seal(make_identity("birch"), receiver, head, encode(np.ones(SIZE)))
        assert "ok" in decode(answer_ask(hosts["ash"], write_ask(f"count[{number}]", nonce=nonce, mail=[letter])))
        return hosts["ash"].store.state("run-1", f"in:{called}:birch") is not None

    assert not held(0, path, name)
    assert held(1, "part.tell[0]", "word")


def test_names_of_parties_do_not_mix_up_letters() -> None:
    """The name of a letter inside a party's name is no way to another's letters."""
    names = ("ash", "word-ash", "word_ash", "in-word-ash")
    consortium = replace(
        make_consortium(3),
        parties=names,
        dropouts=0,
        roster={n: make_identity(n).public for n in (COORDINATOR, *names)},
    )
    parties, _ = set_up_run(Shout(), consortium)
    begin(parties)
    parties.ask(Shout.tell)
    for name, values in parties.ask(Shout.hear).items():
        others = sum(float(ord(other[0])) for other in names if other != name)
        np.testing.assert_array_equal(values["heard"], others)


def test_a_step_writes_to_a_party_once_under_a_name() -> None:
    class Twice(Shout):
        @step()
        def tell(self, site: Any) -> None:
            for _ in range(2):
                site.send("birch" if site.party != "birch" else "ash", "word", np.zeros(SIZE))

    parties, _ = set_up_run(Twice(), make_consortium(3, dropouts=0))
    begin(parties)
    with pytest.raises(Refused, match="undeclared"):
        parties.ask(Twice.tell)


# Keys of the run.


def test_a_key_of_the_run_that_its_party_did_not_sign_is_refused() -> None:
    """A coordinator in the middle would read every letter."""
    parties, hosts = set_up_run(Shout(), make_consortium(3, dropouts=0))
    view = parties.under("run")
    keys = {p: v["run_key"] for p, v in view.ask("begin", coordinator_key=make_identity("x").public.sealing()).items()}
    own = make_identity("mallory").public.sealing()
    swapped = {**keys, "birch": {"key": own, "signature": keys["birch"]["signature"]}}
    view.ask("meet", run_keys=swapped)
    with pytest.raises(Refused, match="signature") as refusal:
        parties.ask(Shout.tell)
    assert refusal.value.party in ("ash", "cedar")
    assert "tell[0]" not in hosts["ash"].store.replies("run-1")


@dataclass(frozen=True)
class Whisper(Shout):
    """All tell the first party something, and nobody else."""

    def declare(self, consortium: Any) -> Declaration:
        word = Release(name="word", source=EVERY_PARTY, to="ash", protection=Sealed("a vector"), form=Array((SIZE,)))
        return Declaration((word,), adversary="nobody")


def test_a_party_is_shown_the_keys_of_those_that_it_may_write_to() -> None:
    met = {}
    for protocol in (Shout(), Whisper()):
        parties, _ = set_up_run(protocol, make_consortium(4, dropouts=0))
        begin(parties)
        path = "run.meet[0]"
        asked = dict(parties.journal.exchanges(parties.study, parties.run, path))
        met[protocol.name, type(protocol)] = {
            party: set(Ask.parse(exchange.message).values["run_keys"]) for party, exchange in asked.items()
        }
        (shared,) = parties.journal._connection.execute("select shared from common where path = ?", (path,)).fetchone()
        # What all of them get is written down once.
        assert set(decode(shared)) == ({"run_keys"} if type(protocol) is Shout else set())
    everyone = {"ash", "birch", "cedar", "doum"}
    assert met["shout", Shout] == dict.fromkeys(everyone, everyone)
    assert met["shout", Whisper] == {party: {"ash"} for party in everyone - {"ash"}}


def test_a_key_of_another_run_is_refused() -> None:
    earlier, _ = told(run="run-0")
    parties, _ = set_up_run(Shout(), make_consortium(3, dropouts=0))
    view = parties.under("run")
    view.ask("begin", coordinator_key=make_identity("x").public.sealing())
    view.ask("meet", run_keys=earlier.run_keys)
    with pytest.raises(Refused, match="signature"):
        parties.ask(Shout.tell)


def test_without_having_met_nobody_writes() -> None:
    parties, _ = set_up_run(Shout(), make_consortium(3, dropouts=0))
    parties.under("run").ask("begin", coordinator_key=make_identity("x").public.sealing())
    with pytest.raises(Refused, match="sealed"):
        parties.ask(Shout.tell)


def test_what_is_not_declared_as_sealed_is_not_sent() -> None:
    class Loud(Shout):
        def declare(self, consortium: Any) -> Declaration:
            word, heard, _ = super().declare(consortium).releases
            open_word = Release(
                name="word", source=EVERY_PARTY, to=EVERY_PARTY, protection=Public("in clear"), form=word.form
            )
            return Declaration((open_word, heard), adversary="nobody")

    parties, _ = set_up_run(Loud(), make_consortium(3, dropouts=0))
    begin(parties)
    with pytest.raises(Refused) as refusal:
        parties.ask(Loud.tell)
    assert refusal.value.code == "undeclared"
