"""Rounds that are entrusted to a curator: one debit for all, with the first; private choices of the curator, once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from comity.errors import DataError, Refused
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Ball, OpenedValue
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.payers import largest_cost
from comity.federation.declare.protection import Curated, EntrustedRounds, Perturbed
from comity.federation.declare.release import Array
from comity.federation.messages.codec import decode
from comity.federation.owner.site import Site
from comity.federation.plan import plan
from comity.federation.protocol import Protocol, step
from comity.privacy.loss import GDP, Pure
from comity.privacy.mechanisms import Gaussian, NoisyThreshold
from comity.privacy.randomness import SeededNoise
from comity.study.results.views import list_views
from tests.support.asks import answer_ask, write_ask
from tests.support.consortia import list_draws, make_consortium
from tests.support.rounds import host_party, set_up_run

TOP = NoisyThreshold(loss=Pure(1), sensitivity=1.0, threshold=2.0)


@dataclass(frozen=True)
class Ranked(Protocol):
    """In each round parties say a number, and those with small ranks are told so, with noise."""

    name = "ranked"
    rounds: int = 3
    asked: int = 3
    pays_for: tuple[str, ...] = ("told",)
    fails_in: int = -1

    def declare(self, consortium: Consortium) -> Declaration:
        return Declaration(
            (
                Release(
                    name="numbers",
                    source=EVERY_PARTY,
                    to=COORDINATOR,
                    protection=EntrustedRounds(Pure(1), self.pays_for),
                    form=Array((1,), "<i8"),
                    bound=Ball(4.0),
                    grid=2.0**-20,
                    times=self.rounds,
                ),
                Release(
                    name="told",
                    source=COORDINATOR,
                    to=EVERYONE,
                    protection=Curated(TOP, of="numbers"),
                    form=Array((5,), "<i8"),
                    times=self.rounds,
                ),
            ),
            adversary="whoever sees the rounds",
        )

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        for number in range(self.asked):
            got = parties.ask(self.say, label=min(number, self.rounds - 1))
            parties.compute("told", np.array([values["numbers"][0] for values in got.values()]).argsort())
        return {}

    @step(sends="numbers")
    def say(self, site: Site) -> None:
        if int(site.label) == self.fails_in:
            raise ArithmeticError("a fit failed")
        site.contribute(site.features[int(site.label), :1])


def test_all_rounds_are_one_debit_paid_with_the_first() -> None:
    parties, hosts = set_up_run(Ranked(), noise=SeededNoise(5))
    run(parties)
    for one in hosts.values():
        assert list_draws(one) == [("numbers", 0)]
        assert one.store.ledger.summary()[0].spent.pure == 1
    declared = parties.declaration
    assert largest_cost(declared, parties.consortium).pure == 1
    shown = plan("study", Ranked(), make_consortium())
    assert shown.rows[0].loss == "eps 1.00" and "one loss for all rounds" in shown.rows[0].protection
    assert "by the coordinator, with noisy threshold" in shown.rows[1].protection


@pytest.mark.parametrize("label", [0, 2])
def test_whichever_round_is_asked_for_first_pays(label: int) -> None:
    """A coordinator that skips the first round buys nothing by it; and what fails takes part neutrally, and pays."""
    one = host_party(Ranked(fails_in=label), make_consortium(), "ash")
    answer_ask(one, write_ask("run.begin[0]"))
    assert decode(answer_ask(one, write_ask(f"say[{label}]")))["ok"]["numbers"].tolist() == [0]
    assert list_draws(one) == [("numbers", 0)]
    assert "ok" in decode(answer_ask(one, write_ask("say[1]")))
    assert list_draws(one) == [("numbers", 0)]
    assert decode(answer_ask(one, write_ask("say[3]")))["refused"] == "too-often"


def told(parties: Parties) -> list[bytes]:
    begin(parties)
    parties.protocol.coordinate(parties)
    return [one.tobytes() for one in parties.kept["told"]]


def test_a_curator_s_choice_is_drawn_once_and_is_the_same_when_resumed() -> None:
    loose = replace(TOP, loss=Pure(0.01))

    @dataclass(frozen=True)
    class Loose(Ranked):
        def declare(self, consortium: Consortium) -> Declaration:
            declared = super().declare(consortium)
            noisy = replace(declared["told"], protection=Curated(loose, of="numbers"))
            return replace(declared, releases=(declared["numbers"], noisy))

    found = []
    parties, hosts = set_up_run(Loose(rounds=20, asked=20), noise=SeededNoise(5))
    found.append(told(parties))
    again, _ = set_up_run(Loose(rounds=20, asked=20), noise=SeededNoise(6), hosts=hosts)
    again.journal = parties.journal
    found.append(told(again))
    other, _ = set_up_run(Loose(rounds=20, asked=20), noise=SeededNoise(6))
    assert found[0] == found[1] != told(other)


def test_no_more_choices_than_declared_and_none_of_what_can_not_be_chosen_from() -> None:
    parties, _ = set_up_run(Ranked(asked=4), noise=SeededNoise(5))
    with pytest.raises(Refused, match="declared 3 times") as found:
        told(parties)
    assert found.value.code == "too-often"
    parties, _ = set_up_run(Ranked(), noise=SeededNoise(5))
    with pytest.raises(DataError, match="finite"):
        parties.compute("told", np.array([np.nan]))
    with pytest.raises(Refused, match="not declared as computed"):
        parties.compute("numbers", np.zeros(5))


def test_what_nobody_pays_for_is_not_made() -> None:
    consortium = make_consortium()
    with pytest.raises(ValueError, match="told is made by the coordinator, but no entrusted release"):
        Ranked(pays_for=("others",)).declare(consortium).accept(consortium)
    declared = Ranked(pays_for=("others",)).declare(consortium)
    noise = Perturbed(Gaussian(GDP(1)), of="numbers")
    noisy = replace(declared["told"], protection=noise, bound=OpenedValue(l2=1.0, limit=9.0), form=Array((5,)), times=1)
    with pytest.raises(ValueError, match="no entrusted release"):
        replace(declared, releases=(declared["numbers"], noisy)).accept(consortium)
    replace(Ranked().declare(consortium), releases=(Ranked().declare(consortium)["numbers"], noisy)).accept(consortium)


def test_the_page_and_the_transcript_know_what_is_in_clear() -> None:
    parties, _ = set_up_run(Ranked(), noise=SeededNoise(5))
    run(parties)
    coordinator, each = list_views(parties.declaration, parties.consortium)
    assert [one.unprotected for one in coordinator.seen] == [True, False]
    assert [one.unprotected for one in each.seen] == [False]
    replies = [line for line in parties.transcript.lines if line.path.startswith("say") and "coord" in line.direction]
    assert replies and not any(line.digest for line in replies)
