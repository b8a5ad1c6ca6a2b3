"""What was secret during a run is in no file after it: neither owners' files nor the journal open what was recorded."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from comity.crypto.sealing import Identity
from comity.entropy import fresh_seed
from comity.errors import Malformed, StudyError
from comity.federation.coordinator.journal import Journal
from comity.federation.coordinator.lifecycle import run
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Derived, Public, Sealed
from comity.federation.declare.release import Array, Blob
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.letters import Head, unseal
from comity.federation.messages.signatures import SIGNATURE_BYTES
from comity.federation.protocol import step
from tests.support.channels import record_channel
from tests.support.consortia import NAMES, make_consortium, make_identity
from tests.support.rounds import Rounds, set_up_run

BYTES = 64


@dataclass(frozen=True)
class Secretive(Rounds):
    """Letters to one and to all, a value sealed by the coordinator and one sealed to it, a secret of its own; a sum."""

    name = "secretive"

    def declare(self, consortium: Any) -> Declaration:
        def release(name: str, source: str, to: str, protection: Any) -> Release:
            return Release(name=name, source=source, to=to, protection=protection, form=Blob(BYTES))

        sealed = Sealed("a secret")
        own = (
            release("whisper", EVERY_PARTY, EVERY_PARTY, sealed),
            release("shout", EVERY_PARTY, EVERY_PARTY, sealed),
            release("dealt", COORDINATOR, EVERY_PARTY, sealed),
            release("confessed", EVERY_PARTY, COORDINATOR, sealed),
            release("plain", EVERY_PARTY, COORDINATOR, Public("in clear")),
        )
        return replace(super().declare(consortium), releases=(*super().declare(consortium).releases, *own))

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        dealt = parties.once("dealt", lambda: {name: fresh_seed() * 2 for name in parties.consortium.parties})
        parties.ask(self.tell, each={name: {"dealt": dealt[name]} for name in parties.alive})
        parties.ask(self.hear)
        return super().coordinate(parties)

    @step(gives=("confessed", "plain"))
    def tell(self, site: Any, dealt: bytes) -> dict[str, Any]:
        others = [party for party in site.consortium.parties if party != site.party]
        secrets = {name: site.secret() * 2 for name in ("whisper", "shout", "confessed", "plain")}
        site.keep("secrets", secrets)
        site.keep("dealt", dealt)
        site.send(others[0], "whisper", secrets["whisper"])
        site.send_all(others, "shout", secrets["shout"])
        return {"confessed": secrets["confessed"], "plain": secrets["plain"]}

    @step()
    def hear(self, site: Any) -> None:
        site.keep("heard", [*site.received("whisper").values(), *site.received("shout").values()])


def ran(folder: Any, consortium: Any = None) -> Any:
    """A finished run: what was secret in it, what crossed, and the keys of that run, taken from memory meanwhile."""
    parties, hosts = set_up_run(Secretive(), consortium or make_consortium(3, dropouts=0), folder)
    parties.journal = Journal(folder / "journal")
    line, secrets, keys = record_channel(parties), {}, {}

    def watching(path: Any) -> None:
        if path != "run.end[0]":
            return
        for name, host in hosts.items():
            for kind, secret in decode(host.store.state("run-1", "secrets") or b"").items():
                secrets[name, kind] = secret[:32]
            secrets[name, "dealt"] = decode(host.store.state("run-1", "dealt") or b"")[:32]
            secrets[name, "run key"] = keys[name] = decode(host.store.state("run-1", "run:secret") or b"")
            secrets[name, "sum root"] = decode(host.store.state("run-1", "sum.root") or b"")

    parties.progress = watching
    # The files as they are before the end: else the search below could not fail.
    taken: dict[Any, Any] = {}
    settle = parties.journal.settle

    def settling(study: Any, run_id: Any, *, keeping: Any = ()) -> None:
        if not taken:
            taken.update(files(folder))
            secrets[COORDINATOR, "run key"] = keys[COORDINATOR] = parties.journal.recall(run_id, "run:key")
            for party, dealt in parties.journal.recall(run_id, "dealt").items():
                secrets[party, "dealt, in the journal"] = dealt[:32]
        settle(study, run_id, keeping=keeping)

    cast(Any, parties.journal).settle = settling
    released = run(parties)["result"]
    return parties, hosts, line, secrets, keys, taken, released


def files(folder: Any) -> dict[Any, Any]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def holding(found: Any, secret: Any) -> list[Any]:
    return [name for name, raw in found.items() if secret in raw]


def test_no_secret_of_a_finished_run_is_in_any_file(home: Any) -> None:
    parties, hosts, _, secrets, _, before, _ = ran(home)
    assert any(name.endswith("-wal") for name in before), "the log is where deleted rows would stay"
    for whose, secret in secrets.items():
        assert holding(before, secret) or whose[1] in ("run key", "sum root"), whose
    assert all(holding(before, secrets[name, "run key"]) for name in (*NAMES[:3], COORDINATOR))
    after = files(home)
    assert set(before) <= set(after)
    for whose, secret in secrets.items():
        assert holding(after, secret) == [], whose
    # With the sites and the journal still open: nobody had to close a file for it.
    assert all(host.store.state("run-1", "secrets") is None for host in hosts.values())
    assert parties.journal.runs() == ["run-1"]


def test_no_host_holds_its_key_of_a_finished_run(home: Any) -> None:
    _, hosts, _, _, keys, _, _ = ran(home)
    assert [host._run_key for host in hosts.values()] == [None] * len(hosts)
    host = hosts[NAMES[0]]
    # Two runs, one after the other: each has its own key, made once.
    first, second = host.run_key(keys[NAMES[0]]), host.run_key(keys[NAMES[1]])
    assert first.public != second.public and host.run_key(keys[NAMES[1]]) is second


def test_no_reply_of_a_finished_run_is_in_an_owners_file(home: Any) -> None:
    _, _, line, *_ = ran(home)
    after = files(home)
    bodies = [raw[:-SIGNATURE_BYTES] for _, raw in line.replies]
    masked = [decode(body)["ok"]["mean"].tobytes() for body in bodies if "mean" in decode(body).get("ok", {})]
    assert masked and all(holding(after, words) == [] for words in masked)


def letters_of(line: Any) -> Iterator[Any]:
    for party, raw in line.asks:
        for letter in decode(raw[:-SIGNATURE_BYTES])[5]:
            yield party, letter


def boxes_of(line: Any) -> Iterator[Any]:
    """Values that crossed sealed between the coordinator and a site, with their heads."""
    for party, raw in line.asks:
        study, run_id, path, _, own, *_ = decode(raw[:-SIGNATURE_BYTES])
        for name in ("dealt",):
            if name in decode(own):
                yield party, decode(own)[name], Head(study, run_id, path, COORDINATOR, party, name)
    for party, raw in line.replies:
        reply = decode(raw[:-SIGNATURE_BYTES]).get("ok", {})
        if "confessed" in reply:
            yield COORDINATOR, reply["confessed"], Head(study, run_id, "tell[0]", party, COORDINATOR, "confessed")


def test_stolen_pinned_keys_and_recorded_traffic_open_nothing_after_the_run(home: Any) -> None:
    _, _, line, _, keys, _, _ = ran(home)
    assert len(list(letters_of(line))) >= 3 * 3 and len(list(boxes_of(line))) == 6
    for party, letter in letters_of(line):
        head = Head.of(letter)
        sender = make_identity(head.sender).public
        for name in (*NAMES[:3], COORDINATOR):
            with pytest.raises(Malformed):
                unseal(make_identity(name), sender, head, letter)
        # Control: the deleted key is all that is missing.
        assert unseal(Identity(keys[party]), sender, head, letter)
    for party, box, head in boxes_of(line):
        context = encode(["value", head.raw])
        for name in (*NAMES[:3], COORDINATOR):
            with pytest.raises(Malformed):
                make_identity(name).open(box, context)
        assert Identity(keys[party]).open(box, context)


def test_an_abandoned_run_leaves_no_secret_either(home: Any) -> None:
    parties, hosts = set_up_run(Secretive(), make_consortium(3, dropouts=0), home)
    from comity.federation.coordinator.lifecycle import begin

    begin(parties)
    parties.ask(Secretive.tell, each={name: {"dealt": bytes(BYTES)} for name in parties.alive})
    secrets = decode(hosts["ash"].store.state("run-1", "secrets") or b"").values()
    key = decode(hosts["ash"].store.state("run-1", "run:secret") or b"")
    owned = {name: raw for name, raw in files(home).items() if name.startswith("ash")}
    assert all(holding(owned, secret) for secret in (key, *secrets))
    hosts["ash"].store.abandon("run-1")
    owned = {name: raw for name, raw in files(home).items() if name.startswith("ash")}
    assert not any(holding(owned, secret) for secret in (key, *secrets))


# The journal.


def test_a_journal_is_its_owners_alone_from_the_first_moment(home: Any) -> None:
    before = os.umask(0)
    try:
        parties, *_ = ran(home)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.glob("journal*")}
    finally:
        os.umask(before)
    assert modes["journal"] == 0o600 and set(modes.values()) == {0o600}
    assert len(modes) > 1, "the log beside it too"
    parties.journal.close()
    (home / "journal").chmod(0o644)
    Journal(home / "journal").close()
    assert stat.S_IMODE((home / "journal").stat().st_mode) == 0o600


def test_a_new_journal_is_never_open_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    try:
        # Not even for the moment before its mode could be changed.
        monkeypatch.setattr(os, "chmod", lambda path, mode: None)
        Journal(tmp_path / "journal").close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "journal").stat().st_mode) == 0o600


def test_a_finished_run_gives_the_same_values_and_the_same_transcript_without_what_it_was_made_of(home: Any) -> None:
    parties, hosts, line, *_, released = ran(home)
    first, asks = parties.transcript, len(line.asks)
    assert first.rounds == len({line.path for line in first}) > 8 and first.bytes > 10_000
    again, _ = set_up_run(Secretive(), make_consortium(3, dropouts=0), hosts=hosts)
    again.journal = Journal(home / "journal")
    np.testing.assert_array_equal(run(again)["result"], released)
    assert again.transcript == first
    assert not cast(Any, again.channel).asked and len(line.asks) == asks
    assert list(again.journal.traffic(again.study, "run-1")) == []


def test_sizes_and_digests_of_the_transcript_are_those_of_what_crossed(home: Any) -> None:
    import hashlib

    parties, _, line, *_ = ran(home)
    crossed: dict[str, list[bytes]] = {}
    for _, raw in line.asks:
        crossed.setdefault(str(decode(raw[:-SIGNATURE_BYTES])[2]), []).append(raw[:-SIGNATURE_BYTES])
    lines = {one.path: one for one in parties.transcript if one.direction == "to parties"}
    assert set(lines) == set(crossed)
    for path, messages in crossed.items():
        digest = hashlib.sha256(b"".join(hashlib.sha256(raw).digest() for raw in messages)).hexdigest()
        assert (lines[path].bytes, lines[path].digest) == (sum(map(len, messages)), digest), path


def test_a_journal_of_another_version_is_not_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal._connection.execute("pragma user_version = 1")
    journal.close()
    with pytest.raises(StudyError, match="another version"):
        Journal(tmp_path / "journal")


@dataclass(frozen=True)
class Released(Rounds):
    """Says at its end what its sum was made of."""

    def declare(self, consortium: Any) -> Declaration:
        heard = Release(name="heard", source=COORDINATOR, to=EVERYONE, protection=Derived("slope"), form=Array((3,)))
        return replace(super().declare(consortium), releases=(*super().declare(consortium).releases, heard))

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        made = super().coordinate(parties)
        return {**made, "heard": parties.once("made", lambda: np.arange(3.0))}


def test_the_coordinators_own_chance_is_deleted_and_what_it_released_stays(home: Any) -> None:
    parties, _ = set_up_run(Released(), make_consortium(3, dropouts=0), home)
    run(parties)
    assert parties.journal.recall("run-1", "made") is None
    assert parties.journal.recall("run-1", "run:key") is None
    np.testing.assert_array_equal(run(parties)["heard"], np.arange(3.0))
