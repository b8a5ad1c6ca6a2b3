"""Blinded points: the standard map, commutative blinding, and nothing that shows through the blinding."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.bindings import crypto_scalarmult
from scipy import stats

from comity.crypto.psi_ecdh import blind, elligator, fresh_secret, hash_to_field, hash_to_points, on_curve
from comity.crypto.psi_keyed import match_lists
from comity.errors import Malformed
from tests.support.uniformity import uniform_bytes_pvalue

PRIME = 2**255 - 19

# RFC 9380, appendix J.4.2: curve25519_XMD:SHA-512_ELL2_NU_: the message, its field element, and what it is mapped to.
VECTORS = [
    (
        b"",
        "608d892b641f0328523802a6603427c26e55e6f27e71a91a478148d45b5093cd",
        "51125222da5e763d97f3c10fcc92ea6860b9ccbbd2eb1285728f566721c1e65b",
    ),
    (
        b"abc",
        "46f5b22494bfeaa7f232cc8d054be68561af50230234d7d1d63d1d9abeca8da5",
        "7d56d1e08cb0ccb92baf069c18c49bb5a0dcd927eff8dcf75ca921ef7f3e6eeb",
    ),
    (
        b"abcdef0123456789",
        "235fe40c443766ce7e18111c33862d66c3b33267efa50d50f9e8e5d252a40aaa",
        "3fbe66b9c9883d79e8407150e7c2a1c8680bee496c62fabe4619a72b3cabe90f",
    ),
    (
        b"q128_" + b"q" * 128,
        "001e92a544463bda9bd04ddbe3d6eed248f82de32f522669efc5ddce95f46f5b",
        "227e0bb89de700385d19ec40e857db6e6a3e634b1c32962f370d26f84ff19683",
    ),
    (
        b"a512_" + b"a" * 512,
        "1a68a1af9f663592291af987203393f707305c7bac9c8d63d6a729bdc553dc19",
        "3bcd651ee54d5f7b6013898aab251ee8ecc0688166fce6e9548d38472f6bd196",
    ),
]


@pytest.mark.parametrize(("message", "element", "u"), VECTORS)
def test_the_published_vectors_of_the_map(message: Any, element: Any, u: Any) -> None:
    tag = b"QUUX-V01-CS02-with-curve25519_XMD:SHA-512_ELL2_NU_"
    assert hash_to_field(message, tag) == mpz(element, 16)
    assert elligator(mpz(element, 16)) == mpz(u, 16)


def test_the_published_vector_of_the_multiplication() -> None:
    """RFC 7748, section 5.2. Its point is on the curve."""
    secret = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    point = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    assert blind(secret, point).hex() == "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"


@given(st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=5, unique=True))
@settings(max_examples=30, deadline=None)
def test_every_id_has_a_point_of_the_curve_of_its_own(ids: Any) -> None:
    made = split(hash_to_points(ids))
    assert len(set(made)) == len(ids)
    assert all(map(on_curve, made))
    assert hash_to_points(ids[::-1]) == b"".join(made[::-1])


def split(raw: Any) -> list[Any]:
    return [raw[at : at + 32] for at in range(0, len(raw), 32)]


@given(st.lists(st.sets(st.integers(0, 12), max_size=8), min_size=2, max_size=4), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_lists_that_all_have_blinded_match_where_the_ids_do(sets: Any, chance: Any) -> None:
    held = [chance.sample(sorted(one), len(one)) for one in sets]
    secrets = [fresh_secret() for _ in held]
    tokens = {}
    for place, ids in enumerate(held):
        raw = hash_to_points([b"%d" % one for one in ids])
        for turn in range(len(secrets)):
            raw = blind(secrets[(place + turn) % len(secrets)], raw)
        tokens[str(place)] = raw
    positions = match_lists(tokens, 32)
    aligned = [[ids[at] for at in positions[str(place)]] for place, ids in enumerate(held)]
    assert all(one == aligned[0] for one in aligned)
    assert set(aligned[0]) == set.intersection(*map(set, sets))


def test_many_points_keep_their_order() -> None:
    ids = [b"%d" % i for i in range(1100)]
    secret = fresh_secret()
    raw = hash_to_points(ids)
    assert split(blind(secret, raw)) == [crypto_scalarmult(secret, one) for one in split(raw)]


TWIST = next(i.to_bytes(32, "little") for i in range(2, 50) if not on_curve(i.to_bytes(32, "little")))


@pytest.mark.parametrize(
    "raw",
    [
        bytes(31),
        bytes(33),
        bytes(32),  # the point of order two
        (1).to_bytes(32, "little"),  # order four
        # order eight
        bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
        TWIST,
        (PRIME + 9).to_bytes(32, "little"),  # the base point, not in its canonical form
        (9 + 2**255).to_bytes(32, "little"),
        b"\xff" * 32,
    ],
)
def test_what_is_no_point_of_the_group_is_refused(raw: Any) -> None:
    good = hash_to_points([b"somebody"])
    with pytest.raises(Malformed):
        blind(fresh_secret(), good + raw)
    assert len(blind(fresh_secret(), good)) == 32


def test_a_secret_has_its_length() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        blind(b"short", hash_to_points([b"a"]))


def test_an_altered_coordinate_is_refused_half_of_the_time_and_never_matches() -> None:
    secret, raw = fresh_secret(), hash_to_points([b"%d" % i for i in range(40)])
    right = set(split(blind(secret, raw)))
    refused = 0
    for place, one in enumerate(split(raw)):
        altered = bytes([one[0] ^ 1, *one[1:]])
        try:
            assert blind(secret, altered) not in right, place
        except Malformed:
            refused += 1
    assert 5 <= refused <= 35


# What a party that relays a list and a coordinator that matches it see.


def blinded(ids: Any) -> np.ndarray:
    return np.frombuffer(blind(fresh_secret(), hash_to_points(ids)), np.uint8).reshape(-1, 32)


def test_blinded_points_look_alike_whoever_the_people_are() -> None:
    near = blinded([b"%06d" % i for i in range(1500)])
    far = blinded([os.urandom(20) for _ in range(1500)])
    for table in (near, far):
        # The last byte has seven bits; every point is on the curve, so that its side tells nothing.
        assert uniform_bytes_pvalue(table[:, :31]) > 1e-6
        assert table[:, 31].max() < 128
        assert all(on_curve(row.tobytes()) for row in table)
    first = [table.view("<u8")[:, 0] / 2.0**64 for table in (near, far)]
    assert stats.ks_2samp(*first).pvalue > 1e-6


def test_raw_hashes_as_coordinates_would_show_a_bit_of_every_id() -> None:
    """Positive control: curve or twist is the same before and after blinding, so one bit of each id shows through."""
    raw = [hashlib.sha256(b"%d" % i).digest()[:31] + b"\0" for i in range(200)]
    bits = [on_curve(one) for one in raw]
    shown = [on_curve(crypto_scalarmult(fresh_secret(), one)) for one in raw]
    assert shown == bits and 50 < sum(bits) < 150
    with pytest.raises(Malformed):
        blind(fresh_secret(), b"".join(raw))


def test_whoever_lacks_the_secret_recognises_nobody() -> None:
    """Positive control inside: with the secret, a dictionary finds everybody."""
    held = [b"%06d" % i for i in range(100)]
    secret = fresh_secret()
    view = set(split(blind(secret, hash_to_points(held))))
    guesses = [b"%06d" % i for i in range(200)]
    assert len(view & set(split(hash_to_points(guesses)))) == 0
    assert len(view & set(split(blind(fresh_secret(), hash_to_points(guesses))))) == 0
    assert len(view & set(split(blind(secret, hash_to_points(guesses))))) == len(held)


def test_a_part_of_small_order_does_not_survive_the_first_blinding() -> None:
    """It would show bits of the id. Adding the point of order two to a point inverts its coordinate."""
    secret = fresh_secret()
    for one in split(hash_to_points([b"%d" % i for i in range(10)])):
        other = pow(int.from_bytes(one, "little"), -1, PRIME).to_bytes(32, "little")
        assert other != one and blind(secret, other) == blind(secret, one)
