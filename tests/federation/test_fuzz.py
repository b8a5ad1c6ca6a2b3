"""A host and a coordinator under mutated messages of a real run: no foreign exception, nothing given out twice or
unpaid, whatever arrives."""

from __future__ import annotations

import random
import time

import pytest

from comity.errors import ComityError
from comity.federation.parties import run
from comity.federation.secure_sum import degree_of

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
from .toy import NoNoise, consortium, host, path_of, setup


def flooded(count, seed, change, flood):
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
        for number in range(min(flood, count - seen)):
            try:
                change(sites, corpus, chance)
            except Exception as error:
                raise Violation(f"seed {seed}, batch {batch}, message {number}: {error!r}") from error
            seen += 1
        for site in sites.values():
            site.audit()
        both_shares(sites, degree_of(consortium(PARTIES)).threshold)
    return sites


def unsigned(sites, corpus, chance):
    one = chance.choice(corpus)
    altered = carried(one.ask, chance.choice(corpus).ask, chance)
    party = one.party if chance.random() < 0.9 else chance.choice(sorted(sites))
    if altered != one.ask or party != one.party:
        sites[party].take(altered, carried_only=all(altered != other.ask for other in corpus))


def resigned(outcomes):
    def change(sites, corpus, chance):
        one = chance.choice(corpus)
        party = one.party if chance.random() < 0.8 else chance.choice(sorted(sites))
        ask = asked_otherwise(one.ask, corpus, chance)
        reply = sites[party].take(sent_by_coordinator(party, ask))
        kind = reply.get("refused", "answered")
        outcomes[kind] = outcomes.get(kind, 0) + 1

    return change


class Canned:
    """Recorded replies, signed again for whatever is asked, with one party lying in one round."""

    def __init__(self, crossed, liar, path, lie):
        self.replies = {(one.party, one.path): one.reply[:-64] for one in crossed}
        self.liar, self.path, self.lie = liar, path, lie

    def ask(self, messages):
        replies = {}
        for party, message in messages.items():
            path = path_of(message)
            body = self.lie if (party, path) == (self.liar, self.path) else self.replies.get((party, path))
            if body is not None:
                replies[party] = sent_by(party, message, body)
        return replies


def lied_to(count, seed):
    """A coordinator whose parties answer as recorded, but for one reply: how often it released, and how often not."""
    _, whole = recorded(noise=NoNoise())
    ended = {"released": 0, "stopped": 0}
    for number in range(count):
        chance = random.Random(f"{seed}/{number}")
        one = chance.choice(whole.crossed)
        lie = replied_otherwise(one.reply, whole.crossed, chance)
        parties, _ = setup(PROTOCOL, consortium(PARTIES), hosts={})
        parties.channel = Canned(whole.crossed, one.party, one.path, lie)
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
    return ended


@pytest.fixture(autouse=True)
def _quiet():
    with silent():
        yield


def test_what_nobody_signed_is_refused_and_changes_nothing():
    sites = flooded(17_000, seed_of("carried", fixed=1), unsigned, flood=1_000)
    assert sum(site.outcomes["refused"] for site in sites.values()) > 200


def test_an_active_coordinator_gets_nothing_twice_and_nothing_unpaid():
    outcomes = {}
    flooded(2_550, seed_of("active coordinator", fixed=2), resigned(outcomes), flood=150)
    # The mutants must get past the signature, and some past all checks, or nothing was tried.
    assert outcomes["answered"] > 100 and len(outcomes) > 8


def test_a_party_that_lies_raises_nothing_foreign_at_the_coordinator():
    ended = lied_to(450, seed_of("lying party", fixed=3))
    assert ended["released"] > 20 and ended["stopped"] > 50


def test_the_fuzzer_sees_a_site_that_answers_twice():
    """Positive control: without its memory of replies a site gives two noises under one key."""
    one = host(PROTOCOL, consortium(PARTIES), "ash", epsilon=50.0)
    site = Watched(one)
    _, whole = recorded()
    begin, average = (
        next(c for c in whole.crossed if c.party == "ash" and c.path == p) for p in ("run.begin[0]", "average[0]")
    )
    site.take(begin.ask)
    site.take(average.ask)
    with one.store.ledger.transaction() as transaction:
        transaction.connection.execute("delete from reply where path = 'average[0]'")
    with pytest.raises(Violation, match="refusal changed what the site holds"):
        site.take(average.ask)
    site.given["run-1", "run.begin[0]"] = b"another"
    with pytest.raises(Violation, match="two different replies"):
        site.take(begin.ask)


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_a_million_mutated_messages(part):
    """700,000 that nobody signed, 260,000 of an active coordinator, 40,000 of a party that lies; a quarter each."""
    started, seed = time.perf_counter(), seed_of("a million")
    outcomes = {}
    flooded(175_000, f"{seed}/{part}/carried", unsigned, flood=4_000)
    flooded(65_000, f"{seed}/{part}/active", resigned(outcomes), flood=400)
    ended = lied_to(10_000, f"{seed}/{part}/lying")
    assert outcomes["answered"] > 2_000 and ended["stopped"] > 1_000
    print(f"250,000 messages in {time.perf_counter() - started:.0f} s; active coordinator {outcomes}; {ended}")
