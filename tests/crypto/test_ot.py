from __future__ import annotations

import os
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from nacl.bindings import crypto_core_ed25519_add, crypto_core_ed25519_sub, crypto_scalarmult_ed25519_base_noclamp
from scipy.stats import kstest

from comity.crypto.comparisons import oblivious_transfer as ot
from comity.crypto.comparisons.oblivious_transfer import choose, offer
from comity.errors import Malformed

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
ORDER = 2**252 + 27742317777372353535851937790883648493
ORDER_EIGHT = bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a")


def add(p: Any, q: Any) -> tuple[Any, Any]:
    (x1, y1), (x2, y2) = p, q
    t = D * x1 * x2 * y1 * y2
    return (
        (x1 * y2 + x2 * y1) * pow(1 + t, -1, P) % P,
        (y1 * y2 + x1 * x2) * pow(1 - t, -1, P) % P,
    )


def times(scalar: Any, point: Any) -> tuple[int, int]:
    out = (0, 1)
    for bit in bin(scalar)[2:]:
        out = add(out, out)
        if bit == "1":
            out = add(out, point)
    return out


def decode(raw: Any) -> Any:
    y = int.from_bytes(raw, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    assert x * x % P == square
    return (x if x & 1 == sign else P - x), y


def encode(point: Any) -> Any:
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def test_the_receiver_gets_the_chosen_key_and_not_the_other() -> None:
    choices = [0, 1, 1, 0] * 8
    start = offer(b"session", os.urandom(32))
    answer, keys = choose(b"session", start.message, choices, os.urandom(32))
    pairs = start.keys(answer, len(choices))
    assert [pair[choice] for pair, choice in zip(pairs, choices)] == keys
    assert len({key for pair in pairs for key in pair}) == 2 * len(choices)


def test_keys_are_the_hashes_of_the_group_elements_of_the_construction() -> None:
    seed = os.urandom(32)
    start = offer(b"session", seed)
    answer, _ = choose(b"session", start.message, [1], os.urandom(32))
    secret = int.from_bytes(start._secret, "little")
    base = decode(bytes.fromhex("58" + "66" * 31))
    assert times(ORDER, base) == (0, 1)
    assert encode(times(secret, base)) == start.message
    a, b = decode(start.message), decode(answer)
    minus_a = (P - a[0], a[1])
    for key, element in zip(start.keys(answer, 1)[0], (times(secret, b), times(secret, add(b, minus_a)))):
        data = (7).to_bytes(8, "little") + b"session" + bytes(8) + start.message + answer + encode(element)
        assert key == blake2b(data, digest_size=32, person=b"comity base ot").digest()


def test_keys_are_bound_to_the_session_and_the_place() -> None:
    start = offer(b"one", os.urandom(32))
    answer, keys = choose(b"another", start.message, [0, 1], os.urandom(32))
    pairs = start.keys(answer, 2)
    assert not {key for pair in pairs for key in pair} & set(keys)
    swapped = start.keys(answer[32:] + answer[:32], 2)
    assert not {key for pair in pairs for key in pair} & {key for pair in swapped for key in pair}


def test_answers_to_different_offers_share_no_secret() -> None:
    seed = os.urandom(32)
    one, two = offer(b"s", os.urandom(32)), offer(b"s", os.urandom(32))
    answers = [choose(b"s", start.message, [1], seed)[0] for start in (one, two)]
    assert crypto_core_ed25519_sub(*answers) != crypto_core_ed25519_sub(one.message, two.message)


def bad_elements() -> dict[Any, Any]:
    good = offer(b"", os.urandom(32)).message
    return {
        "identity": (1).to_bytes(32, "little"),
        "order two": (P - 1).to_bytes(32, "little"),
        "order four": bytes(32),
        "order eight": ORDER_EIGHT,
        "not canonical": (P + 1).to_bytes(32, "little"),
        "off the curve": (2).to_bytes(32, "little"),
        "outside the subgroup": crypto_core_ed25519_add(good, ORDER_EIGHT),
        "short": good[:-1],
        "long": good + b"\0",
        "empty": b"",
    }


@pytest.mark.parametrize("name", bad_elements())
def test_what_is_not_an_element_of_prime_order_is_refused(name: Any) -> None:
    bad = bad_elements()[name]
    with pytest.raises(Malformed):
        choose(b"", bad, [0], os.urandom(32))
    start = offer(b"", os.urandom(32))
    answer, _ = choose(b"", start.message, [0, 1], os.urandom(32))
    with pytest.raises(Malformed):
        start.keys(answer[:32] + bad, 2)


def answers(offered: Any, choice: Any, count: Any) -> list[Any]:
    answer, _ = choose(b"", offered, [choice] * count, os.urandom(32))
    return [answer[i : i + 32] for i in range(0, len(answer), 32)]


def recovered(offered: Any, elements: Any, known: Any) -> list[Any]:
    """The choices that a sender reads off when the receiver's secrets are among those it can try."""
    table = {crypto_scalarmult_ed25519_base_noclamp(scalar.to_bytes(32, "little")) for scalar in known}
    return [0 if e in table else 1 if crypto_core_ed25519_sub(e, offered) in table else None for e in elements]


def test_the_sender_sees_uniform_elements_for_either_choice() -> None:
    for choice in (0, 1):
        offered = offer(b"", os.urandom(32)).message
        elements = answers(offered, choice, 400)
        low = np.array([int.from_bytes(e[:8], "little") / 2**64 for e in elements])
        assert kstest(low, "uniform").pvalue > 1e-6
        assert abs(np.mean([e[31] >> 7 for e in elements]) - 0.5) < 0.13
        assert recovered(offered, elements[:20], range(1, 257)) == [None] * 20


def test_control_small_receiver_secrets_give_the_choices_away(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = offer(b"", os.urandom(32)).message
    monkeypatch.setattr(ot, "_scalar", lambda stream: (stream.bytes(1)[0] + 1).to_bytes(32, "little"))
    for choice in (0, 1):
        assert recovered(offered, answers(offered, choice, 20), range(1, 257)) == [choice] * 20
