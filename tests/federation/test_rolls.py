"""What is encoded, read or hashed once for many parties is what each of them would have made of it."""

from __future__ import annotations

import hashlib

import pytest

from comity.crypto.sealing import Identity
from comity.errors import Malformed
from comity.federation.messages import heads
from comity.federation.messages.ask import NONCE_BYTES, Ask, ask_bytes
from comity.federation.messages.codec import DEPTH, Embedded, decode, embed, encode, encode_names, names_digest
from comity.federation.sum.terms import digest_of, join_digests

NAMES = [f"clinic {number:03}" for number in range(120)]


def parsed(shared: bytes, own: bytes = encode({})) -> Ask:
    none = embed([], depth=1)
    return Ask.parse(ask_bytes("study", "run-1", "sum.enlist[0]", shared, own, none, bytes(NONCE_BYTES), none))


def test_a_roll_is_the_encoded_list() -> None:
    assert encode(encode_names(NAMES)) == encode(NAMES)
    assert encode({"a": 1, "names": encode_names(NAMES)}) == encode({"a": 1, "names": NAMES})
    assert names_digest(NAMES) == hashlib.sha256(encode(NAMES)).digest()
    assert digest_of(NAMES, NAMES[1:]) == join_digests(
        hashlib.sha256(encode(NAMES)).digest(), hashlib.sha256(encode(NAMES[1:])).digest()
    )


@pytest.mark.parametrize("other", [NAMES[:-1], [*NAMES[:-1], "clinic 120"], NAMES[::-1], ["".join(NAMES)]])
def test_another_list_has_another_digest(other: list[str]) -> None:
    assert names_digest(NAMES) != names_digest(other)
    assert names_digest(other) == hashlib.sha256(encode(other)).digest()


def test_what_one_party_does_to_its_list_no_other_sees() -> None:
    shared = encode({"members": NAMES})
    first = parsed(shared).values["members"]
    first.remove(NAMES[7])
    assert parsed(shared).values["members"] == NAMES
    assert parsed(encode({"members": first})).values["members"] == first


def test_values_of_one_party_are_its_own_beside_common_lists() -> None:
    shared = encode({"members": NAMES})
    for mine in (b"ash", b"birch"):
        assert parsed(shared, encode({"mine": mine})).values == {"members": NAMES, "mine": mine}
    with pytest.raises(Malformed, match="named, each once"):
        parsed(shared, encode({"members": NAMES[:3]}))


@pytest.mark.parametrize("value", [{"members": NAMES, "count": 1}, {"members": [*NAMES, 1]}, {"members": [NAMES]}])
def test_common_values_that_are_no_lists_of_names_are_read_as_they_are(value: dict[str, object]) -> None:
    for _ in range(2):
        assert parsed(encode(value)).values == value


def test_common_values_that_are_not_canonical_are_refused_each_time() -> None:
    raw = encode({"members": NAMES})
    for wrong in (raw[:-1], raw + b"N", raw.replace(b"clinic 007", b"clinic \xff07"), encode(NAMES)):
        for _ in range(2):
            with pytest.raises(Malformed):
                parsed(wrong)
    assert parsed(raw).values == {"members": NAMES}


def test_an_embedded_value_stands_where_it_may() -> None:
    deep: list[object] = []
    for _ in range(DEPTH - 1):
        deep = [deep]
    assert decode(encode([embed(deep, depth=1)])) == [deep]
    with pytest.raises(TypeError, match="nested deeper"):
        embed([deep], depth=1)
    assert encode(Embedded(encode({"a": [1.5, b"x"]}))) == encode({"a": [1.5, b"x"]})


def test_a_head_is_signed_for_a_number_and_not_for_what_equals_it() -> None:
    keys = Identity(bytes(32))
    good = heads.sign_head(keys, "ash", "ab" * 32, 1, "cd" * 32)
    heads.verify(keys.public, "ash", good)
    with pytest.raises(Malformed):
        heads.verify(keys.public, "ash", {**good, "count": True})
