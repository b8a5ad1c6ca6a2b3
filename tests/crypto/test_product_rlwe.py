from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, ks_2samp

from comity.crypto.products import rlwe, rlwe_product
from comity.crypto.products.fixed_point import FixedPoint, lower_from_word, raise_to_word
from comity.crypto.products.rlwe import NARROW, WIDE, ProductSum, draw_public_block
from comity.crypto.products.rlwe_product import Encryptor, Evaluator, Plan, Reply, order_pairs
from comity.entropy import Stream, derive, fresh_seed
from comity.errors import Malformed, Refused
from tests.support.uniformity import uniform_bytes_pvalue

RNG = np.random.default_rng(13)
F12, F16 = FixedPoint(12), FixedPoint(16)


def send(encryptor: Any, evaluator: Any, x: Any, y: Any) -> list[Any]:
    """All messages from the encryptor, for integer matrices with a line per row."""
    messages = [encryptor.begin(evaluator.nonce)]
    evaluator.begin(encryptor.nonce, messages[0])
    step = encryptor.plan.block_rows
    for start in range(0, len(x), step):
        messages.append(encryptor.encrypt(np.ascontiguousarray(x[start : start + step].T)))
        evaluator.absorb(messages[-1], np.ascontiguousarray(y[start : start + step].T))
    return messages


def product(plan: Any, x: Any, y: Any) -> np.ndarray:
    encryptor, evaluator = Encryptor(plan), Evaluator(plan)
    send(encryptor, evaluator, x, y)
    mine, theirs = encryptor.share(evaluator.reply()), evaluator.share()
    assert max(mine.max(), theirs.max()) < 2**plan.bits
    return lower_from_word(raise_to_word(mine, plan.bits) + raise_to_word(theirs, plan.bits), plan.bits)


def plan_for(x: Any, y: Any, form: Any, **room: Any) -> Plan:
    return Plan.choose(len(x), x.shape[1], y.shape[1], form, form, **room)


def integers(rows: Any, columns: Any, form: Any) -> np.ndarray:
    return RNG.integers(-form.largest, form.largest + 1, (rows, columns)).astype(np.int32)


def exact(x: Any, y: Any) -> Any:
    return x.astype(np.int64).T @ y.astype(np.int64)


@pytest.mark.parametrize("form", [FixedPoint(8), F12, FixedPoint(13), F16], ids=lambda f: f"f={f.places}")
@pytest.mark.parametrize("rows", [1, 2, 17, 4095, 4096, 4097, 8193])
def test_products_are_exact(rows: int, form: Any) -> None:
    x, y = integers(rows, 3, form), integers(rows, 5, form)
    most = form.largest
    plan = plan_for(x, y, form)
    assert plan.parameters is (NARROW if form.places <= 12 else WIDE)
    for left, right in ((x, y), (np.full_like(x, most), np.full_like(y, -most)), (np.sign(x) * most, y), (0 * x, y)):
        assert np.array_equal(product(plan, left, right), exact(left, right))


@given(st.integers(1, 9000), st.integers(1, 4), st.integers(0, 4), st.integers(0, 16), st.integers(0, 2**40))
@settings(max_examples=12, deadline=None)
def test_products_of_any_shape_are_exact(rows: int, columns: int, more: int, places: int, noise: int) -> None:
    form = FixedPoint(places)
    x, y = integers(rows, columns, form), integers(rows, columns + more, form)
    assert np.array_equal(product(plan_for(x, y, form, noise=noise), x, y), exact(x, y))


def test_shares_of_whole_words_are_exact() -> None:
    x, y = integers(5000, 2, F12), integers(5000, 2, F12)
    plan = plan_for(x, y, F12, bits=64)
    assert plan.parameters is WIDE and plan.bits == 64
    assert np.array_equal(product(plan, x, y), exact(x, y))


@pytest.mark.parametrize("form", [F12, F16], ids=["narrow", "wide"])
def test_long_products_are_exact(form: Any) -> None:
    rows = 70 * (4096 if form is F12 else 8192) + 3
    for x, y in (
        (integers(rows, 1, form), integers(rows, 1, form)),
        (np.full((rows, 1), form.largest, np.int32), np.full((rows, 1), -form.largest, np.int32)),
    ):
        assert np.array_equal(product(plan_for(x, y, form), x, y), exact(x, y))


def unchecked(plan: Any, **changes: Any) -> Plan:
    """A plan that the checks would refuse."""
    changed = object.__new__(Plan)
    for field in dataclasses.fields(Plan):
        object.__setattr__(changed, field.name, changes.get(field.name, getattr(plan, field.name)))
    return changed


def test_a_carry_is_one_unit_with_the_stated_probability() -> None:
    """Shares of 56 bits and large values in the narrow ring, which no plan allows, carry often enough to count."""
    x = integers(4000, 50, F12)
    y = (RNG.choice([-1, 1], x.shape) * F16.largest).astype(np.int32)
    plan = unchecked(Plan.choose(4000, 50, 50, F12, F16), parameters=NARROW, bits=56)
    wrong = 0
    for _ in range(6):
        difference = product(plan, x, y) - exact(x, y)
        assert np.abs(difference).max() <= 1
        wrong += int(np.count_nonzero(difference))
    # The bound has the root of the mean square of the error where the probability has its mean magnitude.
    expected = 6 * plan.carry_probability * np.sqrt(2 / np.pi)
    assert expected > 30
    assert abs(wrong - expected) < 5 * np.sqrt(expected)


def test_the_carry_probability_at_the_sizes_of_the_bars() -> None:
    assert Plan.choose(100_000, 7, 7, F12, F12).carry_probability < 2**-18
    assert Plan.choose(370_000, 7, 7, F12, F12).carry_probability < 2**-15
    assert Plan.choose(100_000, 7, 7, F16, F16).carry_probability < 2**-46


def words_of(parts: Any) -> np.ndarray:
    """All words but the lowest of each number, of which a few bits are idle."""
    return np.concatenate([np.ascontiguousarray(part[1:]).reshape(-1).view(np.uint32) for part in parts])


def lowest(part: Any, idle: Any) -> np.ndarray:
    """The bytes of the lowest words that are in use; what lies below them is zero."""
    words = np.ascontiguousarray(part[0]).reshape(-1).view(np.uint32)
    assert not (words & np.uint32((1 << idle) - 1)).any()
    return (words >> np.uint32(idle)).view(np.uint8).reshape(-1, 4)[:, : 4 - idle // 8]


def test_the_evaluator_sees_uniform_words_whatever_the_encryptor_holds() -> None:
    plan = Plan.choose(8192, 2, 2, F12, F12)
    y = integers(8192, 2, F12)
    views = []
    for x in (np.zeros((8192, 2), np.int32), np.full((8192, 2), F12.largest, np.int32)):
        messages = send(Encryptor(plan), Evaluator(plan), x, y)
        for message in messages:
            for word in message[1:]:
                assert uniform_bytes_pvalue(word) > 1e-7
            assert uniform_bytes_pvalue(lowest(message, plan.parameters.idle)) > 1e-7
        views.append(words_of(messages))
    assert ks_2samp(*views).pvalue > 1e-7


def test_ciphertexts_without_a_secret_are_caught() -> None:
    plan = Plan.choose(4096, 2, 2, F12, F12)
    encryptor, evaluator = Encryptor(plan), Evaluator(plan)
    encryptor._columns._spectra[:] = 0
    messages = send(encryptor, evaluator, np.zeros((4096, 2), np.int32), integers(4096, 2, F12))
    assert uniform_bytes_pvalue(words_of(messages)) < 1e-7


def test_the_encryptor_sees_uniform_words_whatever_the_evaluator_holds() -> None:
    plan = Plan.choose(4096, 40, 40, F12, F12)
    x = integers(4096, 40, F12)
    views = []
    for y in (np.zeros((4096, 40), np.int32), np.full((4096, 40), F12.largest, np.int32)):
        encryptor, evaluator = Encryptor(plan), Evaluator(plan)
        send(encryptor, evaluator, x, y)
        reply = evaluator.reply()
        for part in (reply.h, reply.v):
            assert (
                uniform_bytes_pvalue(part[1:]) > 1e-7
                and uniform_bytes_pvalue(lowest(part, plan.parameters.idle)) > 1e-7
            )
        for share in (evaluator.share(), encryptor.share(reply)):
            top = np.bincount((share >> np.uint64(plan.bits - 4)).reshape(-1).astype(int), minlength=16)
            assert chisquare(top).pvalue > 1e-7
        views.append((words_of([reply.h]), words_of([reply.v])))
    for at in range(2):
        assert ks_2samp(views[0][at], views[1][at]).pvalue > 1e-7


class Unmasked(Evaluator):
    def _draw(self) -> Any:
        blinds = super()._draw()
        self._masks[:] = 0
        return blinds


class Unblinded(Evaluator):
    def _draw(self) -> Any:
        return 0 * super()._draw()


def test_without_masks_the_encryptor_would_read_the_product() -> None:
    x, y = integers(500, 2, F12), integers(500, 2, F12)
    plan = plan_for(x, y, F12)
    encryptor, evaluator = Encryptor(plan), Unmasked(plan)
    send(encryptor, evaluator, x, y)
    read = lower_from_word(raise_to_word(encryptor.share(evaluator.reply()), plan.bits), plan.bits)
    assert np.abs(read - exact(x, y)).max() <= 1


def distance(plan: Any, evaluator: Any, encryptor: Any, reply: Any, guess: Any) -> Any:
    """The largest coefficient of h − Σ a·ỹ for a guessed y, in bits: small if the guess explains h."""
    root = derive(encryptor.nonce + evaluator.nonce, "rlwe product")
    public = Stream(derive(root, "stretch", 0))
    room = np.empty((plan.parameters.words, plan.parameters.degree), "<i4")
    draw_public_block(public, plan.parameters, room)
    explained = ProductSum(plan.parameters, plan.columns_b)
    explained.add(draw_public_block(public, plan.parameters, room), np.ascontiguousarray(guess.T))
    nothing = np.zeros((plan.columns_b, plan.parameters.degree), np.int8)
    q = 1 << (32 * plan.parameters.words)
    most = 0
    for words, other in zip(reply.h[:, 0].T, explained.total(nothing)[:, 0].T):
        rest = sum((int(w) - int(o)) << (32 * place) for place, (w, o) in enumerate(zip(words, other))) % q
        most = max(most, min(rest, q - rest))
    return most.bit_length() - plan.parameters.idle


def test_without_block_zero_the_encryptor_would_recognise_the_data() -> None:
    """h is pseudorandom because of u_j alone: take it away, and the encryptor that guesses y sees that it is right."""
    x, y = integers(64, 1, F12), integers(64, 1, F12)
    neighbour = y.copy()
    neighbour[0, 0] ^= 1
    plan = plan_for(x, y, F12)
    for blinded in (False, True):
        encryptor, evaluator = Encryptor(plan), (Evaluator if blinded else Unblinded)(plan)
        send(encryptor, evaluator, x, y)
        reply = evaluator.reply()
        bits = [distance(plan, evaluator, encryptor, reply, guess) for guess in (y, neighbour)]
        assert (bits[0] <= 5) is (not blinded)
        assert bits[1] > 72


def test_below_the_cut_lies_the_size_of_the_data() -> None:
    """The reason why shares are truncated: what is cut off holds errors times y, whose spread is that of y."""
    spreads = []
    for y in (np.zeros((4096, 30), np.int32), np.full((4096, 30), F12.largest, np.int32)):
        plan = plan_for(y, y, F12)
        encryptor, evaluator = Encryptor(plan), Evaluator(plan)
        send(encryptor, evaluator, np.zeros_like(y), y)
        reply = evaluator.reply()
        sums = reply.v.astype(np.int64) - encryptor._columns.inner_products(reply.h) - evaluator._masks
        whole = sum(sums[place].astype(object) << (32 * place) for place in range(plan.parameters.words))
        q = 1 << (32 * plan.parameters.words)
        spreads.append(np.std([float((v + q // 2) % q - q // 2) for v in whole.reshape(-1)]))
    assert spreads[1] > 100 * spreads[0]


def test_every_message_has_its_own_secrets_and_polynomial() -> None:
    x, y = integers(10, 2, F12), integers(10, 2, F12)
    plan = plan_for(x, y, F12)
    runs = [(Encryptor(plan), Evaluator(plan)) for _ in range(2)]
    messages = [send(*run, x, y) for run in runs]
    assert len({side.nonce for run in runs for side in run}) == 4
    assert not np.array_equal(messages[0][0], messages[1][0])
    assert not np.array_equal(runs[0][0]._columns._secrets, runs[1][0]._columns._secrets)
    assert not np.array_equal(runs[0][1].share(), runs[1][1].share())


def test_a_side_that_kept_its_seed_takes_up_its_message() -> None:
    x, y = integers(5000, 2, F12), integers(5000, 2, F12)
    plan = plan_for(x, y, F12)
    seeds = fresh_seed(), fresh_seed()
    runs = [(Encryptor(plan, seeds[0]), Evaluator(plan, seeds[1])) for _ in range(2)]
    messages = [send(*run, x, y) for run in runs]
    assert all(np.array_equal(one, two) for one, two in zip(*messages))
    replies = [evaluator.reply() for _, evaluator in runs]
    assert np.array_equal(replies[0].h, replies[1].h) and np.array_equal(replies[0].v, replies[1].v)
    mine = Encryptor.awaiting(plan, seeds[0]).share(replies[0])
    total = raise_to_word(mine, plan.bits) + raise_to_word(runs[0][1].share(), plan.bits)
    assert np.array_equal(lower_from_word(total, plan.bits), exact(x, y))


def test_under_another_nonce_a_kept_seed_draws_other_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same errors, the difference of two messages would be (a − a')·s, from which s follows."""
    plan = Plan.choose(10, 1, 1, F12, F12)
    seed, nonces = fresh_seed(), (bytes(32), bytes([1]) * 32)
    messages = [Encryptor(plan, seed).begin(nonce) for nonce in nonces]
    monkeypatch.setattr(rlwe.Errors, "draw", lambda self, stream: np.zeros(self._found.shape, np.int8))
    bare = [Encryptor(plan, seed).begin(nonce) for nonce in nonces]
    idle = plan.parameters.idle
    found = [(with_errors - without)[0, 0] >> idle for with_errors, without in zip(messages, bare)]
    assert all(abs(np.var(errors) - rlwe.ERROR_VARIANCE) < 2 for errors in found)
    assert abs(np.corrcoef(*found)[0, 1]) < 0.1
    evaluators = [Evaluator(plan, seed) for _ in nonces]
    for evaluator, nonce in zip(evaluators, nonces):
        evaluator.begin(nonce, np.zeros((3, 1, 4096), np.int32))
    assert not np.array_equal(evaluators[0]._masks, evaluators[1]._masks)


def test_both_nonces_choose_the_polynomial() -> None:
    plan = Plan.choose(10, 1, 1, F12, F12)
    for changed in (0, 1):
        blocks = []
        for _ in range(2):
            side = Encryptor(plan)
            nonces = [bytes(32), bytes([1]) * 32]
            nonces[changed] = side.nonce
            side._follow(*nonces)
            blocks.append(side._advance())
        assert not np.array_equal(blocks[0], blocks[1])


def test_a_nonce_is_taken_once_and_is_not_ones_own() -> None:
    plan = Plan.choose(10, 1, 1, F12, F12)
    for nonce in (b"", bytes(31), bytes(33)):
        with pytest.raises(Malformed):
            Encryptor(plan).begin(nonce)
    encryptor = Encryptor(plan)
    with pytest.raises(Malformed):
        encryptor.begin(encryptor.nonce)
    encryptor.begin(bytes(32))
    with pytest.raises(Malformed):
        encryptor.begin(bytes(32))


def test_block_zero_can_not_be_left_out() -> None:
    x, y = integers(10, 1, F12), integers(10, 1, F12)
    plan = plan_for(x, y, F12)
    encryptor, evaluator = Encryptor(plan), Evaluator(plan)
    with pytest.raises(Malformed):
        encryptor.encrypt(np.ascontiguousarray(x.T))
    first = encryptor.begin(evaluator.nonce)
    second = encryptor.encrypt(np.ascontiguousarray(x.T))
    with pytest.raises(Malformed):
        evaluator.absorb(second, np.ascontiguousarray(y.T))
    with pytest.raises(Malformed):
        evaluator.reply()
    with pytest.raises(Malformed):
        evaluator.begin(encryptor.nonce, second)
    assert first.shape == (3, 1, 4096)


def test_malformed_messages_are_refused() -> None:
    x, y = integers(5000, 2, F12), integers(5000, 3, F12)
    plan = plan_for(x, y, F12)
    encryptor, evaluator = Encryptor(plan), Evaluator(plan)
    zero = encryptor.begin(evaluator.nonce)
    evaluator.begin(encryptor.nonce, zero)
    left, right = (np.ascontiguousarray(m[:4096].T) for m in (x, y))
    wrong: Any
    for wrong in (left[:1], left[:, :-1], left.astype(np.int64), left + F12.largest * 2):
        with pytest.raises(Malformed):
            encryptor.encrypt(wrong)
    message = encryptor.encrypt(left)
    for wrong in (message[:2], message[:, :, :-1], message.view(np.uint32), message.astype(">i4"), message.reshape(-1)):
        with pytest.raises(Malformed):
            evaluator.absorb(wrong, right)
    for wrong in (right[:2], right - 3 * F12.largest):
        with pytest.raises(Malformed):
            evaluator.absorb(message, wrong)
    evaluator.absorb(message, right)
    with pytest.raises(Malformed):
        evaluator.reply()
    with pytest.raises(Malformed):
        encryptor.share(Reply(np.zeros((3, 3, 4096), np.uint32), np.zeros((3, 2, 3), np.uint32)))
    last = encryptor.encrypt(np.ascontiguousarray(x[4096:].T))
    evaluator.absorb(last, np.ascontiguousarray(y[4096:].T))
    with pytest.raises(Malformed):
        encryptor.encrypt(left)
    with pytest.raises(Malformed):
        evaluator.absorb(message, right)
    reply = evaluator.reply()
    with pytest.raises(Malformed):
        evaluator.reply()
    for wrong in (
        Reply(reply.h[:2], reply.v),
        Reply(reply.h[:, :, :-1], reply.v),
        Reply(reply.h, reply.v[:, :1]),
        Reply(reply.h.astype(np.int64), reply.v),
        Reply(reply.h, reply.v.astype(np.uint64)),
    ):
        with pytest.raises(Malformed):
            encryptor.share(wrong)
    theirs, mine = evaluator.share(), encryptor.share(reply)
    total = raise_to_word(mine, plan.bits) + raise_to_word(theirs, plan.bits)
    assert np.array_equal(lower_from_word(total, plan.bits), exact(x, y))
    with pytest.raises(Malformed):
        encryptor.share(reply)


@pytest.mark.parametrize(
    "changes",
    [
        {"parameters": dataclasses.replace(NARROW, words=4)},
        {"parameters": dataclasses.replace(NARROW, degree=2048)},
        {"parameters": dataclasses.replace(WIDE, words=3)},
        {"parameters": dataclasses.replace(NARROW, largest=2**16)},
        {"columns_a": 3},
        {"columns_a": 0},
        {"rows": 0},
        {"largest_a": 2**13},
        {"largest_b": 2**13},
        {"bits": 30},
        {"bits": 57},
        {"rows": 2**42, "largest_a": 1, "bits": 56},
    ],
    ids=str,
)
def test_what_is_not_on_the_list_is_refused(changes: Any) -> None:
    plan = Plan.choose(1000, 2, 2, F12, F12)
    with pytest.raises(Refused):
        dataclasses.replace(plan, **changes)


def test_too_little_room_is_refused_before_anything_is_sent() -> None:
    assert Plan.choose(4_000_000, 7, 7, F12, F12).parameters is NARROW
    # The shares would fit the narrow ring; what the errors could add up to beside them would not.
    assert Plan.choose(10_000_000, 7, 7, F12, F12).parameters is WIDE
    assert Plan.choose(10_000_000, 7, 7, F16, F16).parameters is WIDE
    with pytest.raises(Refused, match="ring has 64"):
        Plan.choose(2**40, 7, 7, F16, F16)
    with pytest.raises(Refused, match="16 binary places"):
        Plan.choose(1000, 7, 7, FixedPoint(17), F12)


def test_the_messages_have_the_stated_size() -> None:
    x, y = integers(5000, 2, F12), integers(5000, 3, F12)
    plan = plan_for(x, y, F12)
    encryptor, evaluator = Encryptor(plan), Evaluator(plan)
    there = sum(message.nbytes for message in send(encryptor, evaluator, x, y))
    reply = evaluator.reply()
    assert plan.message_bytes == (there, reply.h.nbytes + reply.v.nbytes)


def test_the_party_with_fewer_columns_encrypts() -> None:
    assert order_pairs({"b": 3, "a": 5, "c": 3}) == [("b", "c"), ("b", "a"), ("c", "a")]


# Stretches.


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rlwe_product, "STRETCH_BLOCKS", 2)


def blocks_of(x: Any, plan: Any) -> list[Any]:
    lines = np.ascontiguousarray(x.T)
    return [lines[:, start : start + plan.block_rows] for start in range(0, plan.rows, plan.block_rows)]


def test_stretches_are_shorter_where_many_columns_are_multiplied_together() -> None:
    few = Plan.choose(200_000, 4, 4, F12, F12)
    assert few.stretch_blocks == rlwe_product.STRETCH_BLOCKS
    for together in (100, 160, 640):
        plan = Plan.choose(200_000, 20, 40, F12, F12, together=together)
        assert 1 <= plan.stretch_blocks < rlwe_product.STRETCH_BLOCKS
        assert plan.stretch_blocks * plan.block_rows * together <= rlwe_product.STRETCH_ENTRIES
        assert sum(part.stop - part.start for part in plan.stretches) == 200_000
    assert Plan.choose(200_000, 4, 4, F12, F12, together=1 << 20).stretch_blocks == 1


def test_a_side_that_goes_on_makes_the_message_that_a_whole_one_makes(short: None) -> None:
    x, y = integers(18_000, 2, F12), integers(18_000, 2, F12)
    plan, seeds = plan_for(x, y, F12), (fresh_seed(), fresh_seed())
    assert [(part.start, part.stop) for part in plan.stretches] == [(0, 8192), (8192, 16384), (16384, 18000)]
    whole, evaluator = Encryptor(plan, seeds[0]), Evaluator(plan, seeds[1])
    messages = send(whole, evaluator, x, y)
    reply = evaluator.reply()
    sums: Any = None
    for number in range(3):
        part = slice(2 * number, 2 * number + 2)
        if number == 0:
            encryptor, other = Encryptor(plan, seeds[0]), Evaluator(plan, seeds[1])
            assert np.array_equal(encryptor.begin(other.nonce), messages[0])
            other.begin(encryptor.nonce, messages[0])
        else:
            encryptor = Encryptor.resume(plan, seeds[0], evaluator.nonce, number)
            other = Evaluator.resume(plan, seeds[1], whole.nonce, number, sums)
        for lines, line, message in zip(blocks_of(x, plan)[part], blocks_of(y, plan)[part], messages[1:][part]):
            lines, line = np.ascontiguousarray(lines), np.ascontiguousarray(line)
            assert np.array_equal(encryptor.encrypt(lines), message)
            other.absorb(message, line)
        sums = other.so_far
    again = other.reply()
    assert np.array_equal(again.h, reply.h) and np.array_equal(again.v, reply.v)
    assert np.array_equal(other.share(), evaluator.share())


def test_no_two_blocks_of_any_stretch_have_a_polynomial_or_errors_in_common(short: None) -> None:
    x = np.zeros((18_000, 1), np.int32)
    plan = plan_for(x, x, F12)
    encryptor = Encryptor(plan)
    encryptor.begin(Evaluator(plan).nonce)
    seen = [encryptor._public.copy()]
    noise = []
    for lines in blocks_of(x, plan):
        encryptor.encrypt(np.ascontiguousarray(lines))
        seen.append(encryptor._public.copy())
        noise.append(encryptor._columns._errors._found.copy())
    assert len({a.tobytes() for a in seen}) == len(seen) == 6
    assert len({errors.tobytes() for errors in noise}) == len(noise) == 5


def test_a_stretch_that_is_not_there_can_not_be_gone_on_at(short: None) -> None:
    plan = Plan.choose(9000, 1, 1, F12, F12)
    for stretch in (-1, 0, 2):
        with pytest.raises(Malformed, match="no stretch"):
            Encryptor.resume(plan, fresh_seed(), bytes(32), stretch)
    sums = Evaluator(plan).so_far
    with pytest.raises(Malformed, match="to go on with"):
        Evaluator.resume(plan, fresh_seed(), bytes(32), 1, dataclasses.replace(sums, inner=sums.inner[:1]))


# Messages without their lowest bits.


@pytest.mark.parametrize("dropped", [0, 8, 16, 40])
def test_a_packed_message_is_the_ciphertext_rounded_to_nearest(dropped: Any) -> None:
    plan = dataclasses.replace(Plan.choose(5000, 1, 3, F12, F12), dropped=dropped, beside=1 << 40)
    words = np.random.default_rng(dropped).integers(-(2**31), 2**31, (3, 1, 999)).astype(np.int32)
    # Carries through all words, and the largest and smallest ones.
    words[:, 0, :4] = [[2**31 - 256, -256, -(2**31), 0], [2**31 - 1, -1, -(2**31), 0], [2**31 - 1, -1, -(2**31), 0]]
    words[0] &= np.int32(-256)
    low, high = np.empty(999, plan.low), np.empty((plan.high, 999), "<i4")
    plan.pack(words, low, high)
    assert plan.packed_bytes == low.itemsize + 4 * plan.high == {0: 12, 8: 10, 16: 9, 40: 6}[dropped]
    back, modulus = plan.unpack(low, high), 1 << 96

    def whole(balanced: Any) -> list[int]:
        return [sum(int(word) << (32 * at) for at, word in enumerate(column)) for column in balanced[:, 0].T]

    off = [(found - true + modulus // 2) % modulus - modulus // 2 for found, true in zip(whole(back), whole(words))]
    assert max(map(abs, off)) <= plan.rounding << plan.parameters.idle
    assert (max(map(abs, off)) > 0) == (dropped > 0)


@pytest.mark.parametrize("dropped", [8, 16, 40])
def test_shares_of_a_packed_product_are_off_by_no_more_than_its_plan_says(dropped: Any) -> None:
    rows, generator = 9000, np.random.default_rng(3)
    plan = packed_plan(rows, dropped)
    x, y = (generator.integers(-4096, 4097, (count, rows)).astype(np.int32) for count in (1, 3))
    off = np.abs(packed_product(plan, x, y) - x.astype(np.int64) @ y.T).max()
    assert off <= plan.off_by
    # Rounding is what makes it larger than one unit.
    assert plan.off_by > 1 or dropped == 8


def packed_plan(rows: int, dropped: int) -> Plan:
    return dataclasses.replace(Plan.choose(rows, 1, 3, F12, F12, bits=48), dropped=dropped, beside=1 << 40)


def packed_product(plan: Plan, x: Any, y: Any, seeds: Any = (None, None)) -> np.ndarray:
    """What the shares add up to, from integers with a line per column."""
    a, b, rows = Encryptor(plan, seeds[0]), Evaluator(plan, seeds[1]), plan.rows
    low, high = np.empty(4096, plan.low), np.empty((plan.high, 4096), "<i4")

    def sent(block: Any) -> Any:
        length = block.shape[-1]
        plan.pack(block, low[:length], high[:, :length])
        return plan.unpack(low[:length], high[:, :length])

    b.begin(a.nonce, sent(a.begin(b.nonce)))
    for start in range(0, rows, 4096):
        part = slice(start, start + 4096)
        b.absorb(sent(a.encrypt(np.ascontiguousarray(x[:, part]))), np.ascontiguousarray(y[:, part]))
    total = (a.share(b.reply()) + b.share()) & np.uint64(2**48 - 1)
    found = total.astype(np.int64)
    found[found >= 2**47] -= 2**48
    return found


def test_a_replaced_row_changes_the_errors_of_its_own_coefficients_and_no_others() -> None:
    """With all randomness as it was, a neighbour's opened product differs by the difference of the products, and by no
    more than the rounding of one row and a carry, though both are thousands of units off. That is what a sensitivity
    has to count."""
    rows, generator = 6000, np.random.default_rng(5)
    plan, seeds = packed_plan(rows, 40), (fresh_seed(), fresh_seed())
    x, y = (generator.integers(-4096, 4097, (count, rows)).astype(np.int32) for count in (1, 3))
    whole = packed_product(plan, x, y, seeds)
    off, found = np.abs(whole - x.astype(np.int64) @ y.T), []
    assert off.max() > 1e4
    for row in (0, 17, 4095, 4096, rows - 1):
        near, close = x.copy(), y.copy()
        near[:, row], close[:, row] = -x[:, row], 4096
        change = packed_product(plan, near, close, seeds) - whole
        exact_change = near.astype(np.int64) @ close.T - x.astype(np.int64) @ y.T
        allowed = plan.coefficient_error * (np.abs(y[:, row]) + np.abs(close[:, row])) + 1
        moved = np.abs(change - exact_change)[0]
        assert (moved <= allowed).all()
        found.append((moved / allowed).max())
    # The bound is of the right size: not met by chance alone.
    assert max(found) > 0.2


def test_a_plan_refuses_errors_beyond_the_units_that_it_allows() -> None:
    plan = Plan.choose(4_000_000, 7, 7, F12, F12)
    for dropped in (16, 40):
        with pytest.raises(Refused, match="could exceed 1 units"):
            dataclasses.replace(plan, dropped=dropped)
    with pytest.raises(Refused, match="leaves out"):
        dataclasses.replace(plan, dropped=4)
