"""Attacks of a coordinator on the secure sum among many parties: lists that leave a party alone, and stolen keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.crypto import masks, shamir
from comity.crypto.share_holders import Degree
from comity.errors import ComityError
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.declare.consortium import Consortium
from comity.federation.messages.codec import decode, encode
from comity.federation.messages.letters import Head, unseal
from comity.federation.sum.terms import degree_of, digest_of, to_units
from comity.privacy.loss import ZCDP
from comity.privacy.unit import Unit
from tests.support.asks import answer_ask, write_ask
from tests.support.consortia import NAMES, STUDY, list_draws, make_consortium, make_identity
from tests.support.noise import NoNoise
from tests.support.rounds import Rounds, host_party, set_up_run

VICTIM = "p000"


def many(size: int = 200, colluders: int = 1, dropouts: int = 20) -> Consortium:
    names = tuple(f"p{k:03}" for k in range(size))
    return Consortium(
        parties=names,
        loss=ZCDP(0.15),
        unit=Unit.RECORD,
        colluders=colluders,
        dropouts=dropouts,
        roster={name: make_identity(name).public for name in ("coordinator", *names)},
    )


class Alone:
    """One real host of a large consortium; the test holds everybody else's keys and plays the coordinator."""

    def __init__(self, consortium: Any) -> None:
        self.consortium = consortium
        self.host = host_party(Rounds(rounds=0), consortium, VICTIM, noise=NoNoise())
        self.ask("run.begin[0]")
        self.holders = self.ask("sum.advertise[0]")["ok"]["holders"]

    def ask(self, path: Any, **values: Any) -> Any:
        return decode(answer_ask(self.host, write_ask(path, **values)))

    def keys(self, names: Any) -> dict[Any, Any]:
        key = make_identity("sealing").public.sealing()
        return {name: {"key": key, "signature": self.signed(name, "run key", name, key)} for name in names}

    def signed(self, name: Any, *what: Any) -> bytes:
        return make_identity(name).sign(encode([STUDY, "run-1", *what]))

    def until_met(self) -> None:
        assert "ok" in self.ask("sum.deal[0]", keys=self.keys(self.holders))
        assert "ok" in self.ask("sum.meet[0]", dealers=[])

    def roll(self, members: Any, count: Any = None) -> dict[Any, Any]:
        near = [name for name in self.holders if name in members][: None if count is None else count - 1]
        return {name: self.signed(name, "members", "0", digest_of(sorted(members))) for name in [*near, VICTIM]}


@pytest.fixture(scope="module")
def consortium() -> Consortium:
    return many()


def without(consortium: Any, names: Any) -> list[Any]:
    return [party for party in consortium.parties if party not in names]


def test_holders_are_chosen_by_the_party_and_differ_between_runs(consortium: Any) -> None:
    one, two = Alone(consortium), Alone(consortium)
    assert len(one.holders) == degree_of(consortium).degree < consortium.size - 1
    assert one.holders != two.holders  # its own coins, not a public label of the run


def test_a_list_of_members_without_enough_of_its_own_holders_is_not_signed(consortium: Any) -> None:
    alone, lost = Alone(consortium), degree_of(consortium).degree + 1 - degree_of(consortium).quorum
    alone.until_met()
    hidden = alone.holders[: lost + 1]
    # As many may be missing as the study allows; but not so many of one party's own holders.
    assert len(hidden) <= consortium.dropouts
    assert alone.ask("sum.enlist[0]", members=without(consortium, hidden))["refused"] == "sum"
    assert alone.ask("sum.enlist[0]", members=without(consortium, [VICTIM]))["refused"] == "sum"
    assert alone.ask("sum.enlist[0]", members=list(consortium.parties)[: consortium.survivors - 1])["refused"] == "sum"
    assert "ok" in alone.ask("sum.enlist[0]", members=without(consortium, hidden[:lost]))


def test_nothing_is_masked_for_a_list_that_its_holders_did_not_sign(consortium: Any) -> None:
    alone, quorum = Alone(consortium), degree_of(consortium).quorum
    alone.until_met()
    members = without(consortium, alone.holders[:3])
    assert alone.ask("sum.seat[0]", roll={})["refused"] == "sum"
    alone.ask("sum.enlist[0]", members=members)
    stranger = next(party for party in members if party not in alone.holders and party != VICTIM)
    few = alone.roll(members, quorum - 1)
    for wrong in ({}, few, {**few, stranger: alone.signed(stranger, "members", "0", digest_of(sorted(members)))}):
        assert alone.ask("sum.seat[0]", roll=wrong)["refused"] == "sum"
        assert alone.ask("average[0]")["refused"] == "sum"
    others = alone.roll(without(consortium, alone.holders[:4]))  # they signed another list
    assert alone.ask("sum.seat[0]", roll=others)["refused"] == "signature"
    assert "ok" in alone.ask("sum.seat[0]", roll=alone.roll(members, quorum))
    assert "ok" in alone.ask("average[0]")


def test_a_list_of_survivors_without_itself_or_its_holders_is_not_signed(consortium: Any) -> None:
    alone, lost = Alone(consortium), degree_of(consortium).degree + 1 - degree_of(consortium).quorum
    alone.until_met()
    members = list(consortium.parties)
    alone.ask("sum.enlist[0]", members=members)
    assert alone.ask("sum.agree[mean/0]", survivors=members)["refused"] == "sum"  # before it masked
    alone.ask("sum.seat[0]", roll=alone.roll(members))
    assert alone.ask("sum.agree[mean/0]", survivors=members)["refused"] == "sum"
    alone.ask("average[0]")
    assert alone.ask("sum.agree[mean/0]", survivors=without(consortium, [VICTIM]))["refused"] == "sum"
    assert alone.ask("sum.agree[mean/0]", survivors=without(consortium, alone.holders[: lost + 1]))["refused"] == "sum"
    survivors = without(consortium, alone.holders[:lost])
    # Where each party has its own holders, it opens for no list that it did not sign.
    assert alone.ask("sum.unmask[mean/0]", consents={})["refused"] == "sum"
    assert "ok" in alone.ask("sum.agree[mean/0]", survivors=survivors)
    agreed = digest_of(members, survivors)
    near = [name for name in alone.holders if name in survivors]
    consents = {name: alone.signed(name, "survivors", "mean/0", agreed) for name in [*near, VICTIM]}
    few = dict(list(consents.items())[: degree_of(consortium).quorum - 1])
    assert alone.ask("sum.unmask[mean/0]", consents=few)["refused"] == "sum"
    assert "ok" in alone.ask("sum.unmask[mean/0]", consents=consents)


def alone_on_its_list(consortium: Any) -> Any:
    """The attack: the victim is shown a list without the parties that it shares masks with, everyone else the true one.
    Then the others open its self mask. Returns what the coordinator reads, and what the victim had to hide."""
    parties, hosts = set_up_run(Rounds(rounds=0), consortium, noise=NoNoise())
    begin(parties)
    view = parties.under("sum")
    said = view.ask("advertise")
    holders = {p: values["holders"] for p, values in said.items()}
    keys = parties.run_keys
    view.ask("deal", each={p: {"keys": {h: keys[h] for h in holders[p]}} for p in said})
    view.ask("meet", each={q: {"dealers": [p for p in said if q in holders[p]]} for q in said})
    near = {*holders[VICTIM], *(p for p in said if VICTIM in holders[p])}
    members = sorted(said)
    shown = [p for p in members if p not in near][: consortium.survivors]
    others = [p for p in members if p != VICTIM]
    rest = {p: {"members": members} for p in others}
    signed = view.ask("enlist", each={VICTIM: {"members": shown}, **rest})
    listed = {p: (*holders[p], p) for p in members}

    def known(p: Any, of: Any, name: Any) -> dict[Any, Any]:
        return {q: of[q][name] for q in listed[p] if q in of and (p == VICTIM) == (q == VICTIM)}

    view.ask("seat", each={p: {"roll": known(p, signed, "enlisted")} for p in members})
    masked = parties.ask(Rounds().average, label=0)[VICTIM]["mean"].copy()
    consents = view.ask("agree", survivors=members, to=others, label="mean/0")
    each = {p: {"consents": known(p, consents, "consent")} for p in others}
    opened = view.ask("unmask", each=each, label="mean/0")
    points = {holder: point for point, holder in enumerate(holders[VICTIM], 1)}
    shares = {point: opened[holder]["opening"]["self"][VICTIM] for holder, point in points.items()}
    masks.subtract(masked, shamir.join(dict(list(shares.items())[: degree_of(consortium).threshold])))
    hidden = decode(hosts[VICTIM].store.state("run-1", "out:mean/0") or b"")
    return to_units(masked), hidden


def test_a_party_that_is_left_alone_on_its_list_would_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positive control: sites that are content with themselves on a list are read exactly; a quorum ends the attack at
    the first list."""
    consortium = many(41, dropouts=18)
    monkeypatch.setattr("comity.federation.sum.terms.choose_degree", lambda *_: Degree(5, 4, 1))
    read, hidden = alone_on_its_list(consortium)
    np.testing.assert_array_equal(read, hidden)
    monkeypatch.setattr("comity.federation.sum.terms.choose_degree", lambda *_: Degree(5, 4, 5))
    with pytest.raises(ComityError, match=r"p000 refused sum\.enlist"):
        alone_on_its_list(consortium)


# Sums of few parties, where all hold shares of all.


def until_asked(parties: Any, hidden: Any = ()) -> Any:
    """The set-up as a coordinator makes it that withholds the keys of `hidden` parties from the others, and theirs."""
    begin(parties)
    view, names = parties.under("sum"), list(parties.consortium.parties)
    near = {p: [q for q in names if q != p and (p in hidden) == (q in hidden)] for p in names}
    view.ask("deal", each={p: {"keys": {q: parties.run_keys[q] for q in near[p]}} for p in names}, need=1)
    return view, near


def test_a_party_without_a_pair_mask_is_no_member() -> None:
    """Five of seven parties without the keys of two: their masks would cancel among them. The others count as members,
    whose noise is relied on, and their vectors stay covered: the coordinator would open too little noise."""
    consortium = make_consortium([*NAMES, "fir", "gum"], dropouts=1)
    assert degree_of(consortium).quorum == 5 < consortium.survivors
    parties, hosts = set_up_run(Rounds(rounds=0), consortium, noise=NoNoise())
    view, near = until_asked(parties, hidden=("fir", "gum"))
    view.ask("meet", each={p: {"dealers": near[p]} for p in NAMES}, need=5)
    ask = write_ask("sum.enlist[0]", nonce=parties.journal.nonce("run-1"), members=list(consortium.parties))
    for name in NAMES:
        assert decode(answer_ask(hosts[name], ask))["refused"] == "sum"


def test_where_nobody_may_drop_out_nobody_is_left_out() -> None:
    consortium = make_consortium(dropouts=0)
    parties, hosts = set_up_run(Rounds(rounds=0), consortium, noise=NoNoise())
    with pytest.raises(ComityError, match=r"elm refused sum\.deal"):
        until_asked(parties, hidden=("elm",))
    parties, hosts = set_up_run(Rounds(rounds=0), consortium, noise=NoNoise())
    view, near = until_asked(parties)
    nonce = parties.journal.nonce("run-1")

    def asked(name: str, path: str, **values: Any) -> Any:
        return decode(answer_ask(hosts[name], write_ask(path, nonce=nonce, **values)))

    # Fewer dealers than there are, and a letter that does not come: no masks, and no vector.
    assert asked("elm", "sum.meet[0]", dealers=near["elm"][1:])["refused"] == "sum"
    assert asked("elm", "sum.meet[0]", dealers=near["elm"])["ok"]["unserved"] == near["elm"]
    assert asked("elm", "average[0]")["refused"] == "sum" and list_draws(hosts["elm"]) == []
    view.ask("meet", each={p: {"dealers": [q for q in NAMES if q < p]} for p in NAMES if p != "elm"})
    parties.ask(Rounds().average, to=NAMES[:4], label=0)
    later: dict[str, dict[str, Any]] = {
        "sum.enlist[0]": {"members": list(NAMES)},
        "sum.seat[0]": {"roll": {}},
        "sum.agree[mean/0]": {"survivors": list(NAMES)},
        "sum.unmask[mean/0]": {"consents": {}},
    }
    for path, values in later.items():
        assert asked("ash", path, **values)["refused"] == "sum", path


@pytest.mark.parametrize("told_all", range(5))
def test_a_coordinator_that_says_nobody_was_lost_to_some_opens_one_list_or_none(told_all: int) -> None:
    """Of four honest parties it tells some that all survive, and the others that elm is lost. The colluder doum gives
    it shares of both kinds. It gets the secrets of one kind at most."""
    consortium = make_consortium(dropouts=1)
    threshold, fewer = degree_of(consortium).threshold, [name for name in NAMES if name != "elm"]
    parties, hosts = set_up_run(Rounds(rounds=0), consortium, noise=NoNoise())
    view, near = until_asked(parties)
    view.ask("meet", each={p: {"dealers": near[p]} for p in NAMES})
    roll = {p: values["enlisted"] for p, values in view.ask("enlist", members=list(NAMES)).items()}
    view.ask("seat", roll=roll)
    parties.ask(Rounds().average, label=0)
    nonce, honest = parties.journal.nonce("run-1"), ["elm", "ash", "birch", "cedar"]

    def asked(name: str, step: str, **values: Any) -> Any:
        return decode(answer_ask(hosts[name], write_ask(f"sum.{step}[mean/0]", nonce=nonce, **values)))

    agreed = digest_of(list(NAMES), fewer)
    consents = {"doum": make_identity("doum").sign(encode([STUDY, "run-1", "survivors", "mean/0", agreed]))}
    opened = []
    for name in honest[:told_all]:
        opened.append(asked(name, "unmask", consents={})["ok"]["opening"])
        assert asked(name, "agree", survivors=fewer)["refused"] == "sum"
        assert asked(name, "agree", survivors=list(NAMES))["refused"] == "sum"
    for name in honest[told_all:]:
        reply = asked(name, "agree", survivors=fewer)
        assert name != "elm" or reply["refused"] == "sum"
        consents |= {name: reply["ok"]["consent"]} if "ok" in reply else {}
    for name in honest[told_all:]:
        reply = asked(name, "unmask", consents=consents) if name != "elm" else {}
        opened += [reply["ok"]["opening"]] if "ok" in reply else []
        assert name == "elm" or "refused" in asked(name, "unmask", consents={})
    shares = {kind: 1 + sum("elm" in one[kind] for one in opened) for kind in ("self", "recovery")}
    assert min(shares.values()) < threshold
    # With all told, the sum of all can be opened; with none told, the sum without elm.
    assert max(shares.values()) >= threshold or 1 < told_all < 4


def test_pinned_keys_that_are_stolen_later_open_no_share() -> None:
    parties, _ = set_up_run(Rounds(rounds=0), noise=NoNoise())
    run(parties)
    letters = 0
    for path, exchanges in parties.journal.traffic(parties.study, parties.run):
        for party, exchange in exchanges.items():
            for letter in decode(exchange.message)[5]:
                head = Head.of(letter)
                assert (head.name, head.to) == ("shares", party) and path == "sum.meet[0]"
                for name in parties.consortium.parties:
                    with pytest.raises(ComityError, match="does not open"):
                        unseal(make_identity(name), make_identity(head.sender).public, head, letter)
                letters += 1
    assert letters == 5 * 4
