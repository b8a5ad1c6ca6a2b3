"""Attacks of whoever has the coordinator's certificate, and of members, on sites that serve: over a real relay, with
nothing spent by any of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from comity.errors import Refused
from comity.federation.messages import heads
from comity.federation.messages.codec import encode
from comity.relay.wire import Frame, Kind
from comity.site.inbox import Inbox
from tests.support.asks import sign_ask, write_ask
from tests.support.relays import needs_server
from tests.support.sites import approve

from .matrix import NOTHING, attack
from .relay_client import RawClient

pytestmark = needs_server

SITE = "the site"


@attack(
    "an unapproved study",
    by="every site that did not approve it, before anybody begins",
    told="study",
    sees="it is not served here",
)
def test_a_study_that_nobody_approved_does_not_run(row: Any, attacked: Any) -> None:
    study = attacked.sites.study(epsilon=0.2, at="unapproved")
    attacked.deliver_study(study)
    with pytest.raises(Refused) as refused:
        attacked.run(study)
    assert refused.value.code == row.told and attacked.sees(row.sees)
    shown = attacked.status()
    assert all(sentence in shown for sentence in attacked.refusals()), "refusals are what the owner's command shows"


@attack(
    "a changed study: asks under the hash of one that is a little different",
    by=SITE,
    told="study",
    sees="it is not served here",
)
def test_a_study_that_was_changed_is_another(row: Any, attacked: Any) -> None:
    with pytest.raises(Refused) as refused:
        attacked.run(attacked.sites.study(epsilon=0.11, at="changed"))
    assert refused.value.code == row.told and attacked.sees(row.sees)


@attack(
    "a changed study: files that were edited at the site after they were approved",
    by=SITE,
    told="study",
    sees="were changed after it arrived",
)
def test_files_that_were_edited_are_not_served(row: Any, attacked: Any) -> None:
    study = attacked.sites.study(epsilon=0.3, at="edited")
    attacked.deliver_study(study)
    for name, service in attacked.services.items():
        path = attacked.sites.home(name) / "studies" / study.hash / "study" / "study.toml"
        path.write_text(path.read_text().replace("epsilon = 0.3", "epsilon = 0.9"))
        service.inbox.approve(study.hash, dataset="patients", runs=1)
    with pytest.raises(Refused) as refused:
        attacked.run(study)
    assert refused.value.code == row.told
    assert any(row.sees in sentence for sentence in attacked.refusals())


@attack(
    "an ask that was signed by another than the coordinator which the study pins",
    by=SITE,
    told="study",
    sees="its coordinator did not sign this for us",
)
def test_an_ask_of_a_member_is_refused(row: Any, attacked: Any) -> None:
    south = attacked.sites.identity("south")
    assert attacked.ask("run.ready[0]", keys=south) == {"refused": row.told, "key": ""} and attacked.sees(row.sees)
    assert "ok" in attacked.ask("run.ready[0]"), "the control: the coordinator's"


@attack(
    "an ask that was signed for another party",
    by=SITE,
    told="study",
    sees="its coordinator did not sign this for us",
)
def test_an_ask_for_another_is_refused(row: Any, attacked: Any) -> None:
    raw = sign_ask(attacked.sites.coordinator, "south", write_ask("run.ready[0]", study=attacked.study.hash))
    assert attacked.said(raw)["refused"] == row.told and attacked.sees(row.sees)


@attack("a malformed ask, properly signed and sealed", by=SITE, told="form", sees="an ask has study, run, path")
def test_a_malformed_ask_is_refused(row: Any, attacked: Any) -> None:
    for ask in (encode([attacked.study.hash]), encode([attacked.study.hash, 1, 2, 3, 4, 5, 6, 7])):
        raw = sign_ask(attacked.sites.coordinator, "north", ask)
        assert attacked.said(raw)["refused"] == row.told and attacked.sees(row.sees)


@attack(
    "code: a step that the method does not have, or the name of something else, in a run that began",
    by=SITE,
    told="no-step",
    sees="there is no step",
)
def test_nothing_runs_that_is_no_step(row: Any, consortium_under_attack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any]
    one, ran = consortium_under_attack, []
    monkeypatch.setattr("os.system", ran.append)
    run = one.new_run()
    assert "ok" in one.ask("run.begin[0]", run=run)
    before = one.heads()
    for path in ("system[0]", "os.system[0]", "run.__init__[0]", "declare[0]", "coordinate[0]", "sum.__class__[0]"):
        assert one.ask(path, run=run)["refused"] == row.told, path
    assert ran == [] and one.heads() == before
    assert sum(row.sees in sentence for sentence in one.refusals()) == 3
    assert "ok" in one.ask("run.abandon[0]", run=run)


@attack(
    "a replayed job: an approved study once more, under another run id",
    by="every site, before anybody begins",
    told="approval",
    sees="approved for 1 run here, and 1 have begun",
)
def test_not_one_run_more_than_approved(row: Any, consortium_under_attack: Any) -> None:
    one = consortium_under_attack
    study = one.sites.study(epsilon=0.15, at="once")
    one.deliver_study(study)
    for service in one.services.values():
        approve(service, service.inbox.find(study.hash))
    one.run(study)
    before = one.heads()
    with pytest.raises(Refused) as refused:
        one.run(study)
    assert refused.value.code == row.told and one.sees(row.sees) and one.heads() == before
    # Nor does handing it over again approve it again.
    one.deliver_study(study)
    decision = Inbox(one.sites.home("north")).find(study.hash).decision
    assert one.heads() == before and decision is not None and decision.runs == 1


@attack(
    "a replayed job: a run that began, with another journal, to see other noise",
    by=SITE,
    told="journal",
    sees="was begun by another journal",
)
def test_a_run_belongs_to_its_journal(row: Any, consortium_under_attack: Any, tmp_path: Path) -> None:
    one = consortium_under_attack
    run = one.new_run()

    class Enough(Exception):
        pass

    def stop(path: Any) -> None:
        if path.startswith("gradient"):
            raise Enough

    with pytest.raises(Enough):
        one.run(one.study, run, progress=stop)
    before = one.heads()
    for path in ("run.begin[0]", "gradient[0]"):
        assert one.ask(path, run=run, nonce=b"another journal of 32 characters")["refused"] == row.told, path
    assert one.sees(row.sees) and one.heads() == before
    one.run(one.study, run)


@attack(
    "a begin that one party refuses",
    by="that party, asked before anybody begins; no other ledger changes",
    told="policy",
    sees="policy.epsilon_per_study",
)
def test_where_one_refuses_nobody_begins(row: Any, attacked: Any) -> None:
    with attacked.site_file("north", swap=("epsilon_per_study = 1.0", "epsilon_per_study = 0.01")):
        with pytest.raises(Refused) as refused:
            attacked.run(attacked.study)
        assert (refused.value.code, refused.value.party) == (row.told, "north") and attacked.sees(row.sees)


@attack(
    "a foreign ledger head, shown to freeze a ledger: made up, or signed by another party",
    by=SITE,
    told="signature",
    sees="does not verify under the pinned key",
)
def test_a_head_that_this_party_did_not_sign_freezes_nothing(row: Any, attacked: Any) -> None:
    ledger = attacked.services["north"].site.owner().ledger
    known = ledger.commit_head()
    south = attacked.sites.identity("south")
    for keys, party in ((south, "south"), (south, "north"), (attacked.sites.identity("north"), "south")):
        foreign = heads.sign_head(keys, party, known.ledger, known.count + 7, "f" * 64)
        found = attacked.ask("run.ready[0]", seen=[foreign])
        assert found["refused"] == row.told and attacked.sees(row.sees)
    # Of a ledger that is not here it says nothing.
    elsewhere = heads.sign_head(south, "south", "another", 5, "f" * 64)
    assert "ok" in attacked.ask("run.ready[0]", seen=[elsewhere])


@attack(
    "a member's flood of its own reply subject, with garbage and with replies to what was not asked",
    by="the coordinator's program, which drops it; for good: `comity consortium revoke`",
    told=NOTHING,
    sees=NOTHING,
)
def test_a_flood_of_one_member_loses_no_reply(row: Any, attacked: Any) -> None:
    junk = [b"", b"x" * 40, Frame(Kind.REPLY, bytes(16), 9, bytes(25)).to_bytes(), bytes(60_000)]

    async def flood() -> None:
        async with RawClient(attacked.loopback.relay_of("south")) as one:
            for number in range(1_000):
                await one.client.publish("comity.reply.south", junk[number % len(junk)])
            await one.client.flush(20)

    flooding = attacked.loop.start(flood())
    for party in ("north", "south", "north", "south"):
        assert "ok" in attacked.ask("run.ready[0]", party=party)
    flooding.result(30)
    assert "ok" in attacked.ask("run.ready[0]", party="south")
