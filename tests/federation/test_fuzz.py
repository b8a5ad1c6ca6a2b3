"""A host and a coordinator under mutated messages of a real run: no foreign exception, nothing given out twice or
unpaid, whatever arrives."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from comity.errors import ComityError
from comity.federation.coordinator.lifecycle import run
from comity.federation.messages.codec import decode
from comity.federation.messages.signatures import SIGNATURE_BYTES
from comity.federation.sum.terms import degree_of
from tests.support.asks import path_of
from tests.support.channels import LossyChannel
from tests.support.consortia import make_consortium
from tests.support.noise import NoNoise
from tests.support.rounds import host_party, set_up_run

from .fuzzing import (
    PARTIES,
    PROTOCOL,
    Violation,
    Watched,
    asked_otherwise,
    both_shares,
    carried,
    recorded,
    replied_otherwise,
    seed_of,
    sent_by,
    sent_by_coordinator,
    silent,
)


def flooded(count: Any, seed: Any, change: Any, flood: Any) -> dict[Any, Watched]:
    """Feed `count` messages to sites in every stage of a run; after `flood` of them it is the next stage's turn."""
    _, whole = recorded()
    stages, seen, sites = whole.rounds, 0, {}
    for batch in range(-(-count // flood)):
        chance = random.Random(f"{seed}/{batch}")
        hosts, before = recorded(stop=batch % stages)
        sites = {name: Watched(one) for name, one in hosts.items()}
        for one in before.crossed:
            sites[one.party].take(one.ask)
        # Of this run, and of the same run with other secrets at the sites.
        corpus = [*before.crossed, *whole.crossed]
        nonce = nonce_of(before.crossed[0].ask) if before.crossed else None
        for number in range(min(flood, count - seen)):
            try:
                change(sites, corpus, chance, nonce)
            except Exception as error:
                raise Violation(f"seed {seed}, batch {batch}, message {number}: {error!r}") from error
            seen += 1
        for site in sites.values():
            site.audit()
        both_shares(sites, degree_of(make_consortium(PARTIES)).threshold)
    return sites


def nonce_of(ask: Any) -> Any:
    return decode(ask[:-SIGNATURE_BYTES])[6]


def unsigned(sites: Any, corpus: Any, chance: Any, nonce: Any) -> None:
    one = chance.choice(corpus)
    altered = carried(one.ask, chance.choice(corpus).ask, chance)
    party = one.party if chance.random() < 0.9 else chance.choice(sorted(sites))
    if altered != one.ask or party != one.party:
        foreign = all(altered != other.ask for other in corpus)
        sites[party].take(altered, carried_only=foreign, verified=chance.random() < 0.1)


def resigned(outcomes: Any) -> Any:
    def change(sites: Any, corpus: Any, chance: Any, nonce: Any) -> None:
        one = chance.choice(corpus)
        # A run that has ended answers nothing any more: there would be little left to try.
        while one.path == "run.end[0]" and chance.random() < 0.95:
            one = chance.choice(corpus)
        party = one.party if chance.random() < 0.8 else chance.choice(sorted(sites))
        ask = asked_otherwise(one.ask, corpus, chance, nonce)
        reply = sites[party].take(sent_by_coordinator(party, ask))
        kind = reply.get("refused", "answered")
        outcomes[kind] = outcomes.get(kind, 0) + 1

    return change


class Lying(LossyChannel):
    """Sites of which one, in one round, sends something else than it meant to, signed like anything else."""

    def __init__(self, hosts: Any, liar: Any, path: Any, chance: Any, corpus: Any) -> None:
        super().__init__(hosts)
        self.liar, self.path, self.chance, self.corpus = liar, path, chance, corpus

    def carry(self, messages: Any) -> Any:
        replies = super().carry(messages)
        if self.liar in replies and path_of(messages[self.liar]) == self.path:
            lie = replied_otherwise(replies[self.liar], self.corpus, self.chance)
            replies[self.liar] = sent_by(self.liar, messages[self.liar], lie)
        return replies


def lied_to(count: Any, seed: Any) -> dict[str, int]:
    """Runs in which one reply of one party is a lie: how many released their result without it, and how many not."""
    _, whole = recorded(noise=NoNoise())
    ended = {"released": 0, "stopped": 0}
    for number in range(count):
        chance = random.Random(f"{seed}/{number}")
        one = chance.choice(whole.crossed)
        parties, hosts = set_up_run(PROTOCOL, make_consortium(PARTIES), noise=NoNoise(), epsilon=50.0)
        parties.channel = Lying(hosts, one.party, one.path, chance, whole.crossed)
        try:
            released = run(parties)
        except ComityError as error:
            ended["stopped"] += 1
            if not str(error).isprintable():
                raise Violation(f"seed {seed}, message {number}: a party wrote to the terminal: {error!r}") from error
        except Exception as error:
            raise Violation(f"seed {seed}, message {number}, {one.party} in {one.path}: {error!r}") from error
        else:
            ended["released"] += 1
            assert set(released) == {"result"}
        for host_of in hosts.values():
            Watched(host_of).audit()
    return ended


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with silent():
        yield


def test_what_nobody_signed_is_refused_and_changes_nothing() -> None:
    sites = flooded(17_500, seed_of("carried", fixed=1), unsigned, flood=1_000)
    assert sum(site.outcomes["refused"] for site in sites.values()) > 200


def test_an_active_coordinator_gets_nothing_twice_and_nothing_unpaid() -> None:
    outcomes: dict[Any, Any] = {}
    flooded(2_480, seed_of("active coordinator", fixed=2), resigned(outcomes), flood=130)
    # The mutants must get past the signature, and some past all checks, or nothing was tried.
    assert outcomes["answered"] > 100 and len(outcomes) > 8


def test_a_party_that_lies_raises_nothing_foreign_at_the_coordinator() -> None:
    ended = lied_to(20, seed_of("lying party", fixed=3))
    # It is lost, and the run goes on without it; but for a refusal at the beginning, which ends a run for all.
    assert ended["released"] > 15


def test_the_fuzzer_sees_a_site_that_answers_twice() -> None:
    """Positive control: without its memory of replies a site gives two noises under one key."""
    one = host_party(PROTOCOL, make_consortium(PARTIES), "ash", epsilon=50.0)
    site = Watched(one)
    _, whole = recorded()
    begin, *_, average = earlier = [
        next(c for c in whole.crossed if c.party == "ash" and c.path == p)
        for p in ("run.begin[0]", "sum.deal[0]", "sum.meet[0]", "sum.enlist[0]", "sum.seat[0]", "average[0]")
    ]
    for ask in earlier:
        site.take(ask.ask)
    with one.store.ledger.transaction() as transaction:
        transaction.connection.execute("delete from reply where path = 'average[0]'")
    with pytest.raises(Violation, match="refusal changed what the site holds"):
        site.take(average.ask)
    site.given["run-1", "run.begin[0]"] = b"another"
    with pytest.raises(Violation, match="two different replies"):
        site.take(begin.ask)


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_a_million_mutated_messages(part: int) -> None:
    """778,000 that nobody signed, 220,000 of an active coordinator, 2,000 of parties that lie; a twentieth of each."""
    started, seed = time.perf_counter(), seed_of("a million")
    outcomes: dict[Any, Any] = {}
    flooded(38_900, f"{seed}/{part}/carried", unsigned, flood=2_000)
    flooded(11_000, f"{seed}/{part}/active", resigned(outcomes), flood=250)
    ended = lied_to(100, f"{seed}/{part}/lying")
    assert outcomes["answered"] > 400 and ended["released"] > 80
    print(f"50,000 messages in {time.perf_counter() - started:.0f} s; active coordinator {outcomes}; {ended}")
