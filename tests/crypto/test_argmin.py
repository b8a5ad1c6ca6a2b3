from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from comity.crypto.comparisons.argmin import Tournament, argmin
from comity.crypto.comparisons.exchange import Side, Transcript, run_locally, unpack
from comity.crypto.comparisons.triples import Triples, deal, read_triples, transfer_triples
from comity.errors import Malformed, Refused
from tests.support.two_sides import deal_triples, share_additively

RNG = np.random.default_rng(7)


def play(shares: Any, tournament: Any, triples: Any = None) -> Transcript[Any, Any]:
    triples = triples or deal_triples(tournament.triples)
    return run_locally(*(argmin(side, shares[side], triples[side], tournament) for side in Side))


@st.composite
def cases(draw: Any) -> Any:
    bits = draw(st.integers(2, 63))
    lowest, highest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    few = st.sampled_from([lowest, lowest + 1, 0, highest - 1, highest])
    values = draw(st.lists(few | st.integers(lowest, highest), min_size=1, max_size=30))
    return Tournament(len(values), bits, draw(st.integers(2, 12))), values


@given(cases())
@settings(max_examples=120, deadline=None)
def test_the_lowest_index_of_the_smallest_value_wins(case: Any) -> None:
    tournament, values = case
    done = play(share_additively(values, RNG), tournament)
    assert done.curator == int(np.argmin(np.array(values, np.int64)))
    assert done.parties is None


@pytest.mark.parametrize("fan_in", [2, 3, 10, 40])
def test_all_equal_at_either_end_of_the_range(fan_in: int) -> None:
    for value in (-(2**62), 2**62 - 1):
        assert play(share_additively([value] * 23, RNG), Tournament(23, fan_in=fan_in)).curator == 0
        assert play(share_additively([2**62 - 1] * 22 + [-(2**62)], RNG), Tournament(23, fan_in=fan_in)).curator == 22


def random_cases(repeats: Any, counts: Any) -> int:
    wrong = 0
    for _ in range(repeats):
        count = int(RNG.choice(counts))
        # From ties everywhere to values that fill the range.
        values = RNG.integers(-(2**62), 2**62, count) >> RNG.integers(0, 63)
        tournament = Tournament(count)
        wrong += play(share_additively(values, RNG), tournament).curator != int(values.argmin())
    return wrong


def test_a_thousand_random_cases_are_exact() -> None:
    assert random_cases(1000, range(1, 25)) == 0


@pytest.mark.long
def test_a_thousand_random_cases_of_a_hundred_candidates_are_exact() -> None:
    assert random_cases(1000, [100]) == 0


def test_triples_by_transfer_serve_as_dealt_ones_do() -> None:
    values = RNG.integers(-(2**62), 2**62, 30)
    tournament = Tournament(30)
    made = run_locally(*(transfer_triples(side, tournament.triples, session=b"s") for side in Side))
    done = play(share_additively(values, RNG), tournament, (made.curator, made.parties))
    assert done.curator == int(values.argmin())
    assert made.curator.left == made.parties.left == 0


@pytest.mark.parametrize(
    ("count", "fan_in", "widths", "rounds"),
    [(1, 10, (), 0), (2, 10, (2,), 8), (100, 10, (10, 10), 25), (100, 100, (100,), 15), (11, 10, (4, 3), 20)],
)
def test_rounds_and_bytes_are_those_of_the_plan(count: int, fan_in: int, widths: Any, rounds: int) -> None:
    tournament = Tournament(count, fan_in=fan_in)
    assert (tournament.widths, tournament.rounds) == (widths, rounds)
    done = play(share_additively(RNG.integers(0, 9, count), RNG), tournament)
    assert done.rounds == rounds
    opening = -(-tournament.index_bits // 8)
    assert done.bytes == sum(2 * -(-2 * g // 8) for g in tournament.gates) + opening
    if rounds:
        assert done.sent_to_parties[-1] == b"" and len(done.sent_to_curator[-1]) == opening


@given(st.integers(1, 3000), st.integers(2, 40))
def test_groups_hold_everybody_and_are_not_too_wide(count: int, fan_in: int) -> None:
    widths = Tournament(count, fan_in=fan_in).widths
    assert np.prod(widths) >= count and all(2 <= width <= fan_in for width in widths)
    assert fan_in ** (len(widths) - 1) < count or count == 1


def received(values: Any, tournament: Any, runs: Any, triples: Any = lambda count: None) -> list[Any]:
    """All bits that each side is sent, run by run, with the curator's shares the same in every run."""
    curator = np.arange(1, len(values) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    shares = curator, np.array(values, np.uint64) - curator
    views: Any = ([], [])
    for _ in range(runs):
        done = play(shares, tournament, triples(tournament.triples))
        for side, sent in zip(Side, (done.sent_to_curator, done.sent_to_parties)):
            views[side].append(unpack_all(sent, tournament))
    return [np.array(view) for view in views]


def unpack_all(sent: Any, tournament: Any) -> np.ndarray:
    sizes = [2 * g for g in tournament.gates]
    rounds = [unpack(message, size) for message, size in zip(sent, sizes)]
    return np.concatenate([*rounds, unpack(sent[-1], tournament.index_bits if sent[-1] else 0)])


def differs(one: Any, two: Any = None) -> bool:
    """Whether the frequency of some bits differs between two samples of views, or from one half."""
    runs = len(one)
    expected, variance = (0.5, 0.25 / runs) if two is None else (two.mean(0), 0.5 / runs)
    statistic = ((one.mean(0) - expected) ** 2 / variance).sum()
    freedom = one.shape[1]
    return not 1e-6 < chi2.sf(statistic, freedom) < 1 - 1e-6


FIRST, SECOND = [9, 3, 80, 30, 5], [120, 1, 2, 127, 64]


def leaks(tournament: Any) -> list[str]:
    """What tells the views of one sample of runs apart from uniform bits, or from those of other values."""
    one, two = (received(values, tournament, 300) for values in (FIRST, SECOND))
    found = []
    for side in Side:
        views = {"first": one[side], "second": two[side]}
        for name, view in views.items():
            if differs(view):
                found.append(f"{side.name} {name}: bits")
            if differs(view[:, 1:] ^ view[:, :-1]):
                found.append(f"{side.name} {name}: neighbouring bits")
            # No chance here: two runs agree in a thousand uniform bits only if they used the same triples.
            assert len(np.unique(view, axis=0)) == len(view)
        if differs(one[side], two[side]):
            found.append(f"{side.name}: first against second")
    return found


def test_what_each_side_is_sent_is_uniform_whatever_the_other_holds() -> None:
    tournament = Tournament(5, bits=9, fan_in=2)
    # A leak shows again in a second sample, chance does not: ten checks at 2e-6 would fail one suite in 50,000.
    assert not (first := leaks(tournament)) or not (second := leaks(tournament)), (first, second)


def test_control_without_masks_the_views_tell_the_inputs_apart() -> None:
    def bare(count: Any) -> tuple[Any, ...]:
        return tuple(Triples(*np.zeros((3, count), np.uint8)) for _ in Side)

    tournament = Tournament(5, bits=9, fan_in=2)
    one, two = (received(values, tournament, 20, bare) for values in (FIRST, SECOND))
    for side in Side:
        assert differs(one[side]) and differs(one[side], two[side])


def test_control_a_curator_that_deals_reads_the_values() -> None:
    tournament = Tournament(3, fan_in=3)
    values = [1_000, 77, 512_345]
    curator, parties = share_additively(values, RNG)
    count = tournament.triples
    messages = deal(count, dealer="office", sides=("curator", "parties"))
    done = play((curator, parties), tournament, [read_triples(side, messages[side], count) for side in Side])
    # The dealer knows the parties' mask of the first gates, whose second inputs are its bits of three differences.
    gates = tournament.gates[0]
    _, mask, _ = read_triples(Side.PARTIES, messages[Side.PARTIES], count).take(gates)
    bits = (unpack(done.sent_to_curator[0], 2 * gates)[gates:] ^ mask).reshape(63, 3)
    stolen = (bits.astype(np.uint64) << np.arange(63, dtype=np.uint64)[:, None]).sum(0, dtype=np.uint64)
    own = curator[[1, 2, 2]] - curator[[0, 0, 1]]
    differences = (stolen + own) & np.uint64(2**63 - 1)
    assert differences.tolist() == [d % 2**63 for d in (77 - 1_000, 512_345 - 1_000, 512_345 - 77)]


def test_triples_are_not_used_again() -> None:
    tournament = Tournament(4)
    triples = deal_triples(tournament.triples)
    shares = share_additively([4, 3, 2, 1], RNG)
    play(shares, tournament, triples)
    with pytest.raises(Refused):
        play(shares, tournament, triples)


@pytest.mark.parametrize("side", list(Side))
def test_messages_of_a_wrong_form_are_refused(side: Any) -> None:
    tournament = Tournament(5, bits=9, fan_in=2)
    shares, count = share_additively([5, 4, 3, 2, 1], RNG), tournament.triples
    messages = deal(count, dealer="office", sides=("curator", "parties"))

    def half() -> Any:
        return argmin(side, shares[side], read_triples(side, messages[side], count), tournament)

    done = play(shares, tournament, [read_triples(s, messages[s], count) for s in Side])
    sent = (done.sent_to_curator, done.sent_to_parties)[side]
    changes: list[Callable[[bytes], bytes]] = [lambda m: m[:-1], lambda m: m + b"\0"]
    for place in range(len(sent)):
        for change in changes:
            if change(sent[place]) == sent[place]:
                continue
            exchange = half()
            next(exchange)
            with pytest.raises(Malformed):
                for i, message in enumerate(sent):
                    exchange.send(change(message) if i == place else message)


def test_an_opened_index_out_of_range_is_refused() -> None:
    tournament = Tournament(5, fan_in=5)
    shares, count = share_additively([9, 9, 9, 9, 1], RNG), tournament.triples
    messages = deal(count, dealer="office", sides=("curator", "parties"))
    done = play(shares, tournament, [read_triples(s, messages[s], count) for s in Side])
    exchange = argmin(Side.CURATOR, shares[0], read_triples(Side.CURATOR, messages[0], count), tournament)
    next(exchange)
    for message in done.sent_to_curator[:-1]:
        exchange.send(message)
    with pytest.raises(Malformed, match="below 5"):
        exchange.send(bytes([done.sent_to_curator[-1][0] ^ 3]))


@pytest.mark.parametrize("sizes", [(0,), (3, 1), (3, 64), (3, 63, 1)])
def test_sizes_out_of_range_are_errors(sizes: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        Tournament(*sizes)


def test_shares_of_a_wrong_form_are_errors() -> None:
    shares: Any
    for shares in (np.zeros(4, np.uint64), np.zeros(3, np.int64), np.zeros((3, 1), np.uint64)):
        with pytest.raises(ValueError, match="3 uint64 shares"):
            next(argmin(Side.CURATOR, shares, deal_triples(1)[0], Tournament(3)))
