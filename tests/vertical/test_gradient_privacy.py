"""What a gradient round may tell: bounds by brute force, audits with broken twins, and what each participant sees."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from comity.audit import gdp_lower_bound
from comity.crypto.packed_words import unpack_words
from comity.federation.coordinator.lifecycle import begin
from comity.federation.coordinator.parties import Parties
from comity.federation.messages.codec import decode
from comity.federation.owner.site import Site
from comity.methods.vertical import rlwe_rounds
from comity.methods.vertical.centralised import CentralRounds
from comity.methods.vertical.curves import CURVES, LARGEST, TABLE_PLACES, WIDEST
from comity.methods.vertical.dealer_rounds import DealerRounds
from comity.methods.vertical.design import PLACES
from comity.methods.vertical.rlwe_rounds import (
    RlweRounds,
    count_lines,
    multiply_lines,
    right_lines,
    rounded_residual,
)
from comity.methods.vertical.rounds import constant_units, gradient_sensitivity
from comity.privacy.accounting import gdp_epsilon
from comity.privacy.loss import Approx
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from tests.support.arrays import find_arrays
from tests.support.channels import WholeLocal
from tests.support.noise import NoNoise
from tests.support.vertical import (
    build_gradients,
    encode_parts,
    enumerate_rows,
    host_parties,
    make_columns,
    make_consortium,
    make_people,
)

from .test_gradients import ROWS


def everything(tried: Any) -> dict[Any, Any]:
    """Every record on a coarse grid of the schema, as each party's columns."""
    rows = enumerate_rows(tried.design)
    return {party: rows[:, tried.design.places(party)] for party in tried.columns}


def whitenings(tried: Any, generator: Any, size: Any) -> dict[Any, Any]:
    """Matrices that a coordinator might send, honest or not."""
    rounds = tried.secure_rounds
    return {party: size * generator.normal(size=(width + 1, width)) for party, width in rounds.widths.items()}


def single_sums(tried: Any, weights: Any, intervals: Any, whitening: Any) -> np.ndarray:
    """Σ u (s(z) − y + ½) of each single record: the rows of the instruments times their residuals."""
    rounds, columns = tried.secure_rounds, everything(tried)
    units = {party: rounds.features(own, party) for party, own in columns.items()}
    places = sum(
        rounds.scores(own, party, weights, interval).astype(np.int64)
        for (party, own), interval in zip(units.items(), intervals)
    )
    holder = tried.design.label_at
    label = columns[holder][:, tried.design.label.start - tried.design.places(holder).start]
    residual = WIDEST.at(np.asarray(places)) - np.where(label > 0, 0.5, -0.5)
    own = [np.ldexp(rounds.instruments(one, party, whitening[party]), -PLACES) for party, one in units.items()]
    constant = np.full((len(residual), 1), constant_units(rounds.size) * 2.0**-PLACES)
    return np.unique(np.hstack([*own, constant]) * residual[:, None], axis=0)


def furthest(found: Any) -> Any:
    squares = (found**2).sum(axis=1)
    apart = squares[:, None] + squares[None] - 2 * found @ found.T
    at = np.unravel_index(apart.argmax(), apart.shape)
    return float(np.sqrt(apart.max())), found[at[0]], found[at[1]]


def worst(tried: Any, tries: Any) -> tuple[float, None, None]:
    """The furthest pair over many messages of a coordinator."""
    generator, best = np.random.default_rng(5), (0.0, None, None)
    for number in range(tries):
        weights = 10.0 ** generator.uniform(-1, 3) * generator.normal(size=tried.secure_rounds.size)
        intervals = np.column_stack([generator.normal(size=len(tried.columns)), np.full(len(tried.columns), 1e9)])
        whitening = whitenings(tried, generator, 10.0 ** generator.uniform(-1, 4))
        if number % 2:
            # Instruments that are alike for all records, and as long as they may be.
            whitening = {party: 0 * matrix for party, matrix in whitening.items()}
            for matrix in whitening.values():
                matrix[-1] = -1e3
        best = max(best, furthest(single_sums(tried, weights, intervals, whitening)), key=lambda one: one[0])
    return best


@pytest.mark.parametrize("parties", [2, 3])
def test_no_replacement_moves_a_round_further_than_declared(parties: int) -> None:
    tried = build_gradients(parties)
    found, *_ = worst(tried, 20)
    assert 0.95 * gradient_sensitivity() < found <= gradient_sensitivity()


def test_no_entry_of_a_table_is_larger_than_declared() -> None:
    """What is looked up is an entry, whatever the coordinator's place and the parties' masks are."""
    entries = [np.ldexp(np.abs(curve.table.values).max(), -TABLE_PLACES) for curve in CURVES]
    values = [np.abs(curve.values).max() for curve in CURVES]
    assert max(entries + values) == LARGEST
    # Entries are raised for their interpolation, and rounded: both count.
    assert max(entries) > max(values)


def test_positive_control_instruments_that_nobody_cuts_break_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = build_gradients(2)
    monkeypatch.setattr("comity.methods.vertical.rounds.instrument_limit", lambda features, instruments, constant: 1e6)
    found, *_ = worst(tried, 4)
    assert found > gradient_sensitivity()


def test_positive_control_a_cubic_that_scores_can_leave_breaks_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = build_gradients(2)
    steps = (np.arange(4096) + 2048) % 4096 - 2048
    z = steps / 64
    monkeypatch.setitem(WIDEST.__dict__, "values", 7 / 32 * (z - z**3 / 32))
    found, *_ = worst(tried, 4)
    assert found > gradient_sensitivity()


def test_a_row_of_instruments_is_never_longer_than_one() -> None:
    generator = np.random.default_rng(3)
    for parties in (2, 3, 4):
        tried = build_gradients(parties)
        rounds, columns = tried.secure_rounds, everything(tried)
        for size in (1e-3, 1.0, 1e4, 1e300, np.nan):
            whitening = whitenings(tried, generator, size)
            squares = sum(
                (rounds.instruments(rounds.features(own, party), party, whitening[party]) ** 2).sum(axis=1)
                for party, own in columns.items()
            )
            assert squares.max() + constant_units(rounds.size) ** 2 <= 4.0**PLACES


def opposite(tried: Any) -> Any:
    """Sums of two records that are each as far from what a model says as can be, one on either side."""
    rounds, high = tried.secure_rounds, float(everything(tried)["ash"][:, 0].max())
    weights, intervals = np.zeros(rounds.size), np.column_stack([np.zeros(len(tried.columns)), np.full(2, 50.0)])
    # Age alone decides, and instruments are alike for everybody and as long as they may be.
    weights[0] = 16 / high
    whitening = {party: np.zeros((width + 1, width)) for party, width in rounds.widths.items()}
    for matrix in whitening.values():
        matrix[-1] = -1e3
    found = single_sums(tried, weights, intervals, whitening)
    return furthest(found)[1:]


def audit_scores(tried: Any, consortium: Any, parts_left: Any, shrink: float = 1.0) -> list[Any]:
    """Likelihood scores of a round's opened sum with `parts_left` parts of the noise, under either neighbour."""
    release = tried.gradient(consortium.loss)
    scale, noise = release.scale(consortium), release.noise
    first, second = opposite(tried)
    step = np.rint((second - first) / scale.grid)
    step = step[np.abs(step) > 0]
    out, draws = [], 60_000
    for place, shift in enumerate((0.0, 1.0)):
        drawn = np.zeros((draws, len(step)))
        for part in range(parts_left):
            source = SeededNoise(10 * place + part)
            drawn += noise.draw(source, scale, drawn.shape, permit=simulated_permit("gradient"), part=True)
        out.append((shift * step + shrink * drawn) @ (step / np.linalg.norm(step) / scale.total))
    return out


def allowed(tried: Any, consortium: Any) -> float:
    """ε at δ = 1e-5 of one round's μ, for a Gaussian mechanism."""
    return gdp_epsilon(float(tried.gradient(consortium.loss).loss.square), 1e-5)


def test_a_round_loses_no_more_than_it_claims() -> None:
    tried = build_gradients(2, rounds=1)
    consortium = make_consortium(tried, Approx(4, 1e-5))
    found = gdp_lower_bound(*audit_scores(tried, consortium, 1), delta=1e-5, confidence=1 - 1e-7)
    assert 0.55 * allowed(tried, consortium) < found <= allowed(tried, consortium)


def test_a_round_with_half_of_the_noise_is_caught() -> None:
    tried = build_gradients(2, rounds=1)
    consortium = make_consortium(tried, Approx(4, 1e-5))
    caught = gdp_lower_bound(*audit_scores(tried, consortium, 1, shrink=1 / 2), delta=1e-5, confidence=1 - 1e-7)
    assert caught > allowed(tried, consortium)


def watch_masked_values(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the coordinator is shown (words by path and party, masked angles), what it gives the last party, and the
    instruments before they are masked."""
    shown: dict[Any, Any] = {}
    scores: list[Any] = []
    given: list[Any] = []
    unmasked: dict[str, list[Any]] = {"instruments": []}
    ask, lines = Parties.ask, DealerRounds._lines

    def asking(self: Parties, step: Any, **values: Any) -> Any:
        found = ask(self, step, **values)
        for party, one in found.items():
            for name in ("masked_instruments", "looked_up"):
                if name in one:
                    shown[str(step), values.get("label"), party] = unpack_words(one[name], one[name]["low"].size)
            scores.extend([one["masked_scores"]] if "masked_scores" in one else [])
        for one in (values.get("each") or {}).values():
            part = one.get("part", {})
            given.extend([unpack_words(part["rest"], part["rest"]["low"].size)] if "rest" in part else [])
            given.extend([part["sums"]] if "sums" in part else [])
        return found

    def watching(self: DealerRounds, site: Any, stretch: int) -> Any:
        found = lines(self, site, stretch)
        unmasked["instruments"].append(found & np.uint64((1 << self.bits) - 1))
        return found

    monkeypatch.setattr(Parties, "ask", asking)
    monkeypatch.setattr(DealerRounds, "_lines", watching)
    return shown, scores, given, unmasked


def test_no_participant_sees_a_partial_score_a_response_or_an_exact_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, frame = build_gradients(3, rounds=2), make_people(ROWS)
    consortium = make_consortium(tried)
    parties, hosts = host_parties(tried, encode_parts(tried, frame), consortium, NoNoise())
    parties.channel = WholeLocal(hosts)
    seen_weights: list[Any]
    seen_weights, carry = [], parties.channel.carry

    def watched(messages: Any) -> dict[str, bytes]:
        for message in messages.values():
            found = list(find_arrays(decode(message[:-64])))
            seen_weights.extend(
                one for one in found if one.dtype == np.float64 and one.size == tried.secure_rounds.size
            )
        return carry(messages)

    cast(Any, parties.channel).carry = watched
    shown, scores, given, unmasked = watch_masked_values(monkeypatch)
    shares: list[Any] = []
    share_of = DealerRounds.share

    def sharing(self: DealerRounds, site: Any, number: int) -> Any:
        shares.append(share_of(self, site, number))
        return shares[-1]

    monkeypatch.setattr(DealerRounds, "share", sharing)
    begin(parties)
    tried.coordinate(parties)
    weights = np.unique(np.array(seen_weights), axis=0)
    assert len(weights) == 2
    columns, rounds = make_columns(tried, frame), tried.secure_rounds
    holder, units_of_all = tried.design.label_at, []
    descent = tried.start(tried.entries.exact(np.hstack(list(columns.values()))), ROWS, consortium)
    whitening, intervals, curve = descent.whitening, descent.intervals, CURVES[descent.curve]
    for party, own in columns.items():
        units = rounds.instruments(rounds.features(own, party), party, whitening[party])
        units_of_all.append(units.astype(np.int64).reshape(-1))
    label = columns[holder][:, tried.design.label.start - tried.design.places(holder).start]
    places = sum(
        rounds.scores(rounds.features(own, party), party, descent.weights, interval, curve).astype(np.int64)
        for (party, own), interval in zip(columns.items(), intervals)
    )
    exact = curve.at(np.asarray(places)) - np.where(label > 0, 0.5, -0.5)
    sums = CentralRounds(rounds, columns, whitening).sums(descent.weights, intervals, curve)
    near = [np.rint(np.ldexp(exact, 12)), np.rint(np.ldexp(sums, 24))]
    units = np.concatenate(units_of_all)
    ring = np.uint64((1 << cast(DealerRounds, rounds).bits) - 1)
    forbidden = np.unique(units[np.abs(units) > 1]).view(np.uint64) & ring
    assert len(forbidden) > 100

    def close(words: Any) -> bool:
        """Whether a word is a response or a sum but for rounding."""
        values = (words.reshape(-1)[:2000].astype(np.uint64) << np.uint64(16)).view(np.int64).astype(np.float64)
        values = np.ldexp(values, -16)
        return any(np.isclose(values[:, None], one[None, :30], rtol=1e-3, atol=0).any() for one in near)

    assert close(near[0].astype(np.int64)) and close(near[1].astype(np.int64))
    # Control: what sites mask is what must not be seen.
    assert all(np.isin(forbidden, held).any() for held in unmasked["instruments"])
    coordinators, small = 0, set(range(1 << 20))
    for words in shown.values():
        coordinators += 1
        assert not np.isin(forbidden, words).any() and not close(words)
        # An instrument is a small integer; uniform words are not.
        assert not any(int(word) in small or 2**48 - int(word) in small for word in words[:2000])
    # Of three parties: instruments once, answers in two rounds.
    assert coordinators == 3 + 2 * 3
    for angles in scores:
        # Masked angles of a party, and of all together, are spread over the whole circle, whatever the scores are.
        counts = np.bincount(angles >> 8, minlength=16)
        assert counts.min() > ROWS / 16 / 3 and counts.max() < ROWS / 16 * 2
    assert len(scores) == 2 * 3
    for share in shares:
        assert not np.isin(forbidden, share).any() and not close(share)
    assert len(shares) == 2 * 3
    for part in given:
        assert not np.isin(forbidden, part).any() and not close(part)
    # The last party's part of masked responses, and of the coordinator's sums, in two rounds.
    assert len(given) == 4


# Without a dealer.


def ring_sums(tried: Any, weights: Any, intervals: Any, whitening: Any, generator: Any, curve: Any) -> np.ndarray:
    """Of each single record, what two parties multiply: a score that is split anywhere, entries rounded."""
    rounds, columns = tried.secure_rounds, everything(tried)
    units = {party: rounds.features(own, party) for party, own in columns.items()}
    places = sum(
        rounds.scores(own, party, weights, interval).astype(np.int64)
        for (party, own), interval in zip(units.items(), intervals)
    )
    holder = tried.design.label_at
    label = columns[holder][:, tried.design.label.start - tried.design.places(holder).start]
    halves, count, found = np.where(label > 0, 0.5, -0.5), len(label), []
    for party, one in units.items():
        own = rounds.instruments(one, party, whitening[party])
        if party == holder:
            own = np.column_stack([own, np.full(count, constant_units(rounds.size))])
        part = generator.integers(0, 4096, count)
        lines = count_lines(curve)
        first = multiply_lines(np.ascontiguousarray(own.T), curve, part.astype(np.uint16), lines)
        second = right_lines(curve, ((places - part) % 4096).astype(np.uint16), halves).reshape(1, -1)
        found.append(np.ldexp((first * second.astype(np.int64)).reshape(len(first), lines, count).sum(axis=1).T, -24))
    return np.unique(np.hstack(found), axis=0)


def worst_on_rings(tried: Any, tries: Any) -> float:
    generator, best = np.random.default_rng(6), 0.0
    for number in range(tries):
        weights = 10.0 ** generator.uniform(-1, 3) * generator.normal(size=tried.secure_rounds.size)
        intervals = np.column_stack([generator.normal(size=len(tried.columns)), np.full(len(tried.columns), 1e9)])
        whitening = whitenings(tried, generator, 10.0 ** generator.uniform(-1, 4))
        if number % 2:
            whitening = {party: 0 * matrix for party, matrix in whitening.items()}
            for matrix in whitening.values():
                matrix[-1] = -1e3
        curve = CURVES[number % len(CURVES)]
        best = max(best, furthest(ring_sums(tried, weights, intervals, whitening, generator, curve))[0])
    return best


@pytest.mark.parametrize("parties", [2, 3])
def test_no_replacement_moves_a_round_without_a_dealer_further_than_declared(parties: int) -> None:
    tried = build_gradients(parties, products="rlwe")
    bound = tried.secure_rounds.bound.l2
    assert 0.95 * bound < worst_on_rings(tried, 12) <= bound
    # Every product may be a unit beside itself, above for one neighbour and below for the other; and messages leave
    # out bits of a record's own coefficients, at each of the two.
    size = tried.secure_rounds.size
    left_out = 2 * 2.0**-24 * worst_rounding(tried)
    assert left_out > 5e-4
    assert bound >= 2 * rounded_residual(size) + 2 * 2.0**-24 * np.sqrt(size) + left_out
    # The errors of encryption, which an evaluator lacks, and a carry come on top.
    moved = cast(RlweRounds, tried.secure_rounds).moved_by_rounding
    assert bound >= 2 * rounded_residual(size) + 2 * 2.0**-24 * (2 * np.sqrt(size) + moved)


def worst_rounding(tried: Any) -> float:
    """The most that rounding may add to the sums with one record, in units: every coefficient of a row is as far off as
    it can be, in the direction in which the evaluator's entry counts."""
    rounds, curve, count = cast(RlweRounds, tried.secure_rounds), WIDEST, 4096
    generator, worst = np.random.default_rng(8), 0.0
    instruments = generator.normal(size=(rounds.size, count))
    instruments = np.trunc(instruments / np.linalg.norm(instruments, axis=0) * 4096)
    entries = multiply_lines(instruments, curve, np.arange(count).astype(np.uint16), count_lines(curve))
    together = np.abs(entries.reshape(rounds.size, -1, count)).sum(axis=1)
    for party in rounds.partner:
        error = rounds.plan(party, rounds.max_rows).coefficient_error
        worst = max(worst, error * float(np.linalg.norm(together, axis=0).max()))
    assert 0.7 * rounds.moved_by_rounding < worst <= rounds.moved_by_rounding
    return worst


def test_positive_control_instruments_that_nobody_cuts_break_the_bound_without_a_dealer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = build_gradients(2, products="rlwe")
    bound = tried.secure_rounds.bound.l2
    monkeypatch.setattr("comity.methods.vertical.rounds.instrument_limit", lambda features, instruments, constant: 1e6)
    assert worst_on_rings(tried, 4) > bound


@pytest.mark.parametrize("curve", CURVES)
def test_rounding_of_waves_is_within_its_bound_over_the_whole_circle(curve: Any) -> None:
    generator, size, count = np.random.default_rng(4), 60, 4096
    instruments = generator.normal(size=(size, count))
    instruments = np.trunc(instruments / np.linalg.norm(instruments, axis=0) * 4096)
    part, label = generator.integers(0, 4096, count), np.where(np.arange(count) % 2, 0.5, -0.5)
    first = multiply_lines(instruments, curve, part.astype(np.uint16), count_lines(curve)).astype(np.int64)
    second = right_lines(curve, ((np.arange(count) - part) % 4096).astype(np.uint16), label).reshape(1, -1)
    found = np.ldexp((first * second).reshape(size, count_lines(curve), count).sum(axis=1).astype(np.float64), -24)
    exact = np.ldexp(instruments, -12) * (curve.at(np.arange(count).astype(np.uint16)) - label)
    off = np.linalg.norm(found - exact, axis=0).max()
    allowed_off = rounded_residual(size) - 0.5 - max(np.abs(curve.values).max() for curve in CURVES)
    assert 0.03 * allowed_off < off <= allowed_off
    assert np.linalg.norm(found, axis=0).max() <= rounded_residual(size)


def test_a_round_without_a_dealer_loses_no_more_than_it_claims() -> None:
    tried = build_gradients(2, rounds=1, products="rlwe")
    consortium = make_consortium(tried, Approx(4, 1e-5))
    found = gdp_lower_bound(*audit_scores(tried, consortium, 1), delta=1e-5, confidence=1 - 1e-7)
    assert 0.55 * allowed(tried, consortium) < found <= allowed(tried, consortium)
    caught = gdp_lower_bound(*audit_scores(tried, consortium, 1, shrink=1 / 2), delta=1e-5, confidence=1 - 1e-7)
    assert caught > allowed(tried, consortium)


def test_without_a_dealer_no_participant_sees_a_partial_score_a_response_or_an_exact_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried, frame = build_gradients(3, rounds=1, products="rlwe"), make_people(ROWS)
    consortium = make_consortium(tried)
    parties, hosts = host_parties(tried, encode_parts(tried, frame), consortium, NoNoise())
    parties.channel = WholeLocal(hosts)
    take, taken, contributed = Site.take, {}, {}
    contribute = Site.contribute

    def taking(site: Any, name: Any, senders: Any = None) -> dict[str, Any]:
        found = take(site, name, senders)
        taken.update({(site.party, name, sender): value for sender, value in found.items()})
        return found

    def contributing(site: Any, value: Any = None, *, share: Any = None) -> Any:
        contributed[site.party] = share
        return contribute(site, value, share=share)

    monkeypatch.setattr(Site, "take", taking)
    monkeypatch.setattr(Site, "contribute", contributing)
    begin(parties)
    tried.coordinate(parties)
    columns, rounds = make_columns(tried, frame), tried.secure_rounds
    descent = tried.start(tried.entries.exact(np.hstack(list(columns.values()))), ROWS, consortium)
    intervals, curve = descent.intervals, CURVES[descent.curve]
    scores = {
        party: rounds.scores(rounds.features(own, party), party, descent.weights, interval, curve).astype(np.int64)
        for (party, own), interval in zip(columns.items(), intervals)
    }
    halves = [(to, sender, value) for (to, name, sender), value in taken.items() if name == "score_parts"]
    assert halves
    for to, sender, letter in halves:
        for party, words in letter["parts"].items():
            counts = np.bincount(words >> 8, minlength=16)
            assert counts.min() > ROWS / 16 / 3 and counts.max() < ROWS / 16 * 2
            assert np.abs(np.corrcoef(words, scores[sender])[0, 1]) < 0.15
            # What the party opposite has makes it whole: why two of three may not collude.
            seed = taken[party, "score_seed", sender]["seed"]
            np.testing.assert_array_equal((words + rlwe_rounds._part(seed, ROWS)) % 4096, scores[sender])
            assert to not in (party, sender)
    exact = CentralRounds(rounds, columns, descent.whitening).sums(descent.weights, intervals, curve)
    modulus, total = 1 << cast(RlweRounds, rounds).bits, sum(int(share[0]) for share in contributed.values())
    near = np.rint(np.ldexp(exact, 24))

    def close(words: Any) -> Any:
        values = np.asarray(words, np.float64).reshape(-1)
        values = np.where(values > modulus / 2, values - modulus, values)
        return np.isclose(values[:, None], near[None], rtol=1e-3, atol=0).any()

    assert close(near % modulus)
    opened = total % modulus
    assert abs((opened - modulus if opened > modulus / 2 else opened) - near[0]) < ROWS * 2.0**24 * 2e-3
    for path, exchanges in parties.journal.traffic(parties.study, parties.run):
        for exchange in exchanges.values():
            for held in find_arrays(decode(exchange.reply or b"")["ok"]):
                if held.dtype != np.float64 and held.size < 10_000:
                    assert not close(held), path
    own = tried.design.label_at
    for party, share in contributed.items():
        # A sum of one's own instruments and labels is one's own to know; what crosses parties is not.
        crossing = share[rounds.places[next(one for one in columns if one not in (party, own))]]
        assert not close(crossing) or not crossing.any(), party
