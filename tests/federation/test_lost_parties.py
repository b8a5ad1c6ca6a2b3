"""One bad or slow party does not end a run of many: it is lost like a silent one, and the others are counted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from comity.errors import Malformed, Refused, SiteLost, Stopped
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Noised, Public, Sealed
from comity.federation.declare.release import Array, Blob, Count
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.letters import Head
from comity.federation.messages.signatures import SIGNATURE_BYTES, sign_reply
from comity.federation.protocol import Protocol, step
from tests.support.asks import path_of
from tests.support.channels import LossyChannel
from tests.support.consortia import STUDY, list_draws, make_consortium, make_identity
from tests.support.noise import NoNoise
from tests.support.rounds import Rounds, set_up_run


class Lying(LossyChannel):
    """One party's replies to one step are replaced by what `lie` makes of them, under its own signature."""

    def __init__(self, hosts: Any, path: Any, lie: Any, party: str = "ash") -> None:
        super().__init__(hosts)
        self.path, self.lie, self.party = path, lie, party

    def carry(self, messages: Any) -> Any:
        replies = super().carry(messages)
        if self.party in messages and path_of(messages[self.party]) == self.path:
            message = messages[self.party]
            made = self.lie(decode(replies[self.party][:-SIGNATURE_BYTES]))
            raw = made if isinstance(made, bytes) else encode(made)
            replies[self.party] = sign_reply(make_identity(self.party), self.party, message, raw)
        return replies


def letter(
    reply: Any, *, to: str = "nobody", path: str = "average[0]", sender: str = "ash", name: str = "word"
) -> dict[Any, Any]:
    head = Head(STUDY, "run-1", path, sender, to, name)
    return {"to": to, "head": head.raw, "box": b"", "signature": bytes(64)}


def ok(reply: Any, **changes: Any) -> dict[Any, Any]:
    return {**reply, "ok": {**reply["ok"], **changes}}


LIES: dict[str, Any] = {
    "another shape": lambda r: ok(r, mean=np.zeros(4, "<i8")),
    "another type": lambda r: ok(r, mean=np.zeros(3)),
    "no array": lambda r: ok(r, mean="zeros"),
    "an extra value": lambda r: ok(r, slope=np.zeros(3, "<i8")),
    "an undeclared value": lambda r: ok(r, secret=1),
    "a missing value": lambda r: {**r, "ok": {}},
    "mail to nobody": lambda r: {**r, "mail": [letter(r)]},
    "mail that is not declared": lambda r: {**r, "mail": [letter(r, to="birch")]},
    "mail in another's name": lambda r: {**r, "mail": [letter(r, to="birch", sender="cedar")]},
    "mail of another step": lambda r: {**r, "mail": [letter(r, to="birch", path="lean[0]")]},
    "mail that is no letter": lambda r: {**r, "mail": [17]},
    "mail without a head": lambda r: {**r, "mail": [{"to": "birch"}]},
    "no mail": lambda r: {name: value for name, value in r.items() if name != "mail"},
    "a box of nobody": lambda r: {**r, "boxes": [b"x"]},
    "boxes that are none": lambda r: {**r, "boxes": 5},
    "a letter without its box": lambda r: {
        **r,
        "mail": [{"to": "birch", "head": letter(r)["head"], "key": b"", "bulk": bytes(32), "signature": bytes(64)}],
    },
    "more than a reply": lambda r: {**r, "also": 1},
    "no reply": lambda r: [1, 2, 3],
    "a number": lambda r: 5,
    "a mixture": lambda r: {**r, "refused": "no", "key": ""},
    "garbage": lambda r: b"garbage",
    "nothing": lambda r: b"",
    "no head": lambda r: {name: value for name, value in r.items() if name != "head"},
    "an unsigned head": lambda r: {**r, "head": {**r["head"], "signature": bytes(64)}},
    "another's head": lambda r: {**r, "head": {**r["head"], "count": r["head"]["count"] + 1}},
    "a head of junk": lambda r: {**r, "head": [1, "x"]},
    "a refusal": lambda r: {"refused": "sum", "key": "x"},
    "a refusal that is none": lambda r: {"refused": 5, "key": b""},
    "a stop": lambda r: {"refused": "stopped", "key": ""},
    "a stop for good": lambda r: {"stopped": True, "head": r["head"]},
    "a stop without a head": lambda r: {"stopped": True},
}


@pytest.mark.parametrize("case", LIES)
def test_a_bad_reply_costs_its_party_and_nobody_else(case: Any) -> None:
    parties, hosts = set_up_run(protocol=Rounds(protection=Noised), noise=NoNoise())
    parties.channel = Lying(hosts, "average[0]", LIES[case])
    released = run(parties)["result"]
    assert set(parties.lost) == {"ash"} and parties.lost["ash"].startswith("average[0]: ")
    missing, _ = set_up_run(protocol=Rounds(protection=Noised), noise=NoNoise(), lose=[("ash", "average[0]")])
    np.testing.assert_array_equal(released, run(missing)["result"])


@pytest.mark.parametrize("case", LIES)
def test_where_nobody_may_be_missing_the_run_says_who_and_why(case: Any) -> None:
    consortium = make_consortium(dropouts=0)
    parties, hosts = set_up_run(protocol=Rounds(protection=Noised), consortium=consortium, noise=NoNoise())
    parties.channel = Lying(hosts, "average[0]", LIES[case])
    with pytest.raises((SiteLost, Stopped, Refused), match="ash") as error:
        run(parties)
    assert error.value.party == "ash"
    parties.channel = LossyChannel(hosts)
    if case == "a refusal":
        with pytest.raises(Refused, match="run-1 was abandoned: ash refused"):
            run(parties)
        return
    # Nothing was decided: what is answered properly the next time is taken.
    assert len(parties.ask(Rounds.average)) == 5


def test_a_reply_is_looked_at_before_the_ask_is_closed(tmp_path: Path) -> None:
    """A lie that was journalled would be read again by every resumed run."""
    consortium = make_consortium(dropouts=0)
    parties, hosts = set_up_run(Rounds(protection=Noised), consortium, tmp_path, noise=NoNoise())
    parties.channel = Lying(hosts, "average[0]", LIES["another shape"])
    with pytest.raises(SiteLost, match=r"ash .*not of its declared form"):
        run(parties)
    assert not parties.journal.is_closed("run-1", "average[0]")
    assert parties.journal.replies("run-1", "average[0]")["ash"] is None
    resumed, _ = set_up_run(Rounds(protection=Noised), consortium, tmp_path, noise=NoNoise(), hosts=hosts)
    plain, _ = set_up_run(Rounds(protection=Noised), consortium, noise=NoNoise())
    np.testing.assert_array_equal(run(resumed)["result"], run(plain)["result"])


def test_why_a_party_was_lost_is_remembered_by_a_resumed_run(tmp_path: Path) -> None:
    parties, hosts = set_up_run(Rounds(protection=Noised), folder=tmp_path, noise=NoNoise())
    parties.channel = Lying(hosts, "average[0]", LIES["a refusal"])
    begin(parties)
    parties.sum(Rounds.average)
    again, _ = set_up_run(Rounds(protection=Noised), folder=tmp_path, noise=NoNoise(), hosts=hosts)
    begin(again)
    again.sum(Rounds.average)
    assert again.lost == parties.lost == {"ash": "average[0]: refused: sum (x)"}


def test_more_bad_parties_than_may_be_lost_stop_the_run() -> None:
    parties, hosts = set_up_run(protocol=Rounds(protection=Noised), noise=NoNoise(), lose=[("birch", "average[0]")])
    parties.channel = Lying(hosts, "average[0]", LIES["garbage"])
    parties.channel.lose = {("birch", "average[0]")}
    with pytest.raises(SiteLost, match=r"3 of the 4 needed.*ash \(.*\); birch \(no answer\)"):
        run(parties)


def test_a_stop_after_a_draw_is_a_lost_party() -> None:
    class Broken(NoNoise):
        def rounded_gaussian(self, sigma: Any, shape: Any, *, permit: Any) -> Any:
            raise MemoryError

    parties, hosts = set_up_run(protocol=Rounds(protection=Noised))
    cast(Any, hosts["cedar"]).noise = Broken()
    run(parties)
    assert "stopped" in parties.lost["cedar"]
    drawn = list_draws(hosts["cedar"])
    assert drawn == [("mean", 0)]
    parties, hosts = set_up_run(protocol=Rounds(protection=Noised), consortium=make_consortium(dropouts=0))
    cast(Any, hosts["cedar"]).noise = Broken()
    with pytest.raises(Stopped, match=r"cedar .stopped"):
        run(parties)


def unsigned(reply: Any) -> Any:
    return ok(reply, run_key={**reply["ok"]["run_key"], "signature": bytes(64)})


def no_key_at_all(reply: Any) -> Any:
    """Of the right length, signed, and not a key that anybody could seal to."""
    key = b"\xff" * 1216
    signature = make_identity("ash").sign(encode([STUDY, "run-1", "run key", "ash", key]))
    return ok(reply, run_key={"key": key, "signature": signature})


@pytest.mark.parametrize("lie", [unsigned, no_key_at_all])
def test_a_bad_key_of_the_run_costs_its_party_and_not_those_that_write_to_it(lie: Any) -> None:
    parties, hosts = set_up_run(noise=NoNoise())
    parties.channel = Lying(hosts, "run.begin[0]", lie)
    run(parties)
    assert set(parties.lost) == {"ash"} and parties.lost["ash"].startswith("run.begin[0]: ")


def test_a_party_that_is_offline_at_the_beginning_counts_as_lost() -> None:
    parties, hosts = set_up_run(noise=NoNoise(), lose=[("elm", "run.begin[0]")])
    run(parties)
    assert parties.lost == {"elm": "run.begin[0]: no answer"}
    entries = [entry.kind for entry in hosts["elm"].store.ledger.entries()]
    assert "reserve" not in entries and "draw" not in entries
    parties, _ = set_up_run(consortium=make_consortium(dropouts=0), noise=NoNoise(), lose=[("elm", "run.begin[0]")])
    with pytest.raises(SiteLost, match="elm"):
        run(parties)
    parties, _ = set_up_run(noise=NoNoise(), lose=[("elm", "run.begin[0]"), ("doum", "run.begin[0]")])
    with pytest.raises(SiteLost, match=r"run\.begin.*3 of the 4"):
        run(parties)


def test_a_step_that_needs_everybody_does_not_go_on_without_who_was_lost_before() -> None:
    parties, _ = set_up_run(Rounds(protection=Noised), noise=NoNoise(), lose=[("elm", "run.begin[0]")])
    begin(parties)
    with pytest.raises(SiteLost, match="4 of the 5 needed"):
        parties.ask(Rounds.average)
    assert len(parties.ask(Rounds.average, need=4)) == 4


def test_a_caller_looks_at_values_before_the_ask_is_closed() -> None:
    """What a declaration can't say, such as whose signature a consent is."""
    parties, _ = set_up_run(protocol=Rounds(protection=Noised), noise=NoNoise())
    begin(parties)

    def valid(party: str, values: dict[str, Any]) -> None:
        if party == "birch":
            raise Malformed("its mean is not to be trusted")

    got = parties.ask(Rounds.average, need=4, valid=valid)
    assert set(got) == {"ash", "cedar", "doum", "elm"}
    assert parties.lost == {"birch": "average[0]: its mean is not to be trusted"}


# What reaches a terminal.


@pytest.mark.parametrize("word", ["\x1b[2J\x1b]0;owned\x07", "a\r\nb", "x" * 10_000, "ﬁn\u202e", "\x00"])
def test_codes_and_keys_reach_a_terminal_without_anything_but_plain_text(word: Any) -> None:
    parties, hosts = set_up_run(consortium=make_consortium(dropouts=0))
    parties.channel = Lying(hosts, "run.begin[0]", lambda r: {"refused": word, "key": word})
    with pytest.raises(Refused) as error:
        run(parties)
    shown = f"{error.value} {error.value.code} {error.value.key} {parties.lost}"
    assert shown.isascii() and shown.isprintable() and len(shown) < 500
    parties, hosts = set_up_run()
    parties.channel = Lying(hosts, "average[0]", lambda r: {"refused": word, "key": word})
    run(parties)
    assert parties.lost["ash"].isascii() and parties.lost["ash"].isprintable() and len(parties.lost["ash"]) < 300


# Names that a step gives.


@dataclass(frozen=True)
class Counting(Protocol):
    def declare(self, consortium: Any) -> Declaration:
        def public(name: Any, form: Any) -> Release:
            return Release(name=name, source=EVERY_PARTY, to=COORDINATOR, protection=Public(name), form=form)

        note = Release(name="note", source=EVERY_PARTY, to=EVERY_PARTY, protection=Sealed("a note"), form=Blob(9))
        return Declaration((public("size", Count(99)), public("extra", Array((1,))), note), adversary="nobody")

    @step(gives=("size",), may_give=("extra",))
    def count(self, site: Any) -> Any:
        return {"size": 5, **({"extra": np.zeros(1)} if site.party == "ash" else {})}

    @step(gives=("size",))
    def forgets(self, site: Any) -> Any:
        return {}

    @step(gives=("size",))
    def says_more(self, site: Any) -> Any:
        return {"size": 5, "extra": np.zeros(1)}


def test_a_value_that_was_not_given_is_an_error_of_ours() -> None:
    parties, _ = set_up_run(Counting(), make_consortium(3, dropouts=0))
    begin(parties)
    got = parties.ask(Counting.count)
    assert got["ash"]["extra"].tolist() == [0] and got["birch"]["size"] == 5
    with pytest.raises(Malformed, match=r"birch gave no extra in count\[0\]"):
        _ = got["birch"]["extra"]


@pytest.mark.parametrize("name", ["forgets", "says_more"])
def test_a_site_gives_what_its_step_says_and_nothing_else(name: str) -> None:
    parties, _ = set_up_run(Counting(), make_consortium(3, dropouts=0))
    begin(parties)
    with pytest.raises(Refused, match="undeclared"):
        parties.ask(name)
