"""Keyed pseudonyms: the standard hash, exact matching, and a matcher that sees nothing but overlaps."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from comity.crypto import psi_keyed
from comity.crypto.psi_keyed import Packed, find_repeated, make_pseudonyms, match_lists
from comity.errors import Malformed
from tests.support.uniformity import uniform_bytes_pvalue

KEY = bytes(range(32))


def reference(key: Any, ids: Any) -> list[Any]:
    return [hashlib.blake2b(one, key=key, digest_size=16).digest() for one in ids]


def rows(table: Any) -> list[Any]:
    return [row.tobytes() for row in table]


@given(st.lists(st.binary(min_size=1, max_size=400), max_size=20), st.binary(min_size=32, max_size=32))
@settings(max_examples=60, deadline=None)
def test_both_ways_to_hash_are_keyed_blake2b(ids: Any, key: bytes) -> None:
    packed = Packed.of(ids)
    assert list(packed) == ids
    assert rows(psi_keyed._plain(key, packed).reshape(-1, 16)) == reference(key, ids)
    assert rows(psi_keyed._compiled(key, packed).reshape(-1, 16)) == reference(key, ids)


def test_ids_that_fill_a_block_exactly_or_spill_over_are_hashed_right() -> None:
    ids = [bytes([65 + size % 26]) * size for size in (1, 7, 8, 127, 128, 129, 255, 256, 257, 1000)]
    assert rows(psi_keyed._compiled(KEY, Packed.of(ids)).reshape(-1, 16)) == reference(KEY, ids)


def test_many_ids_take_the_compiled_way_and_few_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: Any = []
    for name in ("_plain", "_compiled"):
        real = getattr(psi_keyed, name)
        monkeypatch.setattr(psi_keyed, name, lambda key, ids, n=name, f=real: (taken.append(n), f(key, ids))[1])
    few = Packed.of([b"a", b"b"])
    many = Packed.of([b"%d" % i for i in range(psi_keyed.COMPILED_FROM)])
    make_pseudonyms(KEY, few)
    assert make_pseudonyms(KEY, many).shape == (len(many), 16)
    assert taken == ["_plain", "_compiled"]


def test_the_oracle_gives_the_published_answer() -> None:
    """The keyed vectors of BLAKE2b's authors, for the input 00: what the tests compare with is the standard."""
    vector = hashlib.blake2b(b"\0", key=bytes(range(64))).hexdigest()
    assert vector.startswith("961f6dd1e4dd30f63901690c512e78e4b45e4742ed197c3c5e45c549fd25f2e4")
    assert (
        make_pseudonyms(KEY, Packed.of([b"abc"])).tobytes() == hashlib.blake2b(b"abc", key=KEY, digest_size=16).digest()
    )


@pytest.mark.parametrize(("key", "ids"), [(b"short", [b"a"]), (KEY, [b"a", b""])])
def test_short_keys_and_empty_ids_have_no_pseudonyms(key: Any, ids: Any) -> None:
    with pytest.raises(ValueError):
        make_pseudonyms(key, Packed.of(ids))


people = st.sets(st.integers(0, 30), max_size=25)


@given(st.lists(people, min_size=2, max_size=5), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_matching_gives_the_intersection_in_one_order(sets: Any, chance: Any) -> None:
    lists = [chance.sample(sorted(one), len(one)) for one in sets]
    tokens = {
        f"party {place}": make_pseudonyms(KEY, Packed.of([b"id %d" % one for one in held])).tobytes()
        for place, held in enumerate(lists)
    }
    positions = match_lists(tokens)
    aligned = [[held[at] for at in positions[f"party {place}"]] for place, held in enumerate(lists)]
    assert all(one == aligned[0] for one in aligned)
    assert len(aligned[0]) == len(set(aligned[0]))
    assert set(aligned[0]) == set.intersection(*map(set, sets))


@given(st.lists(st.sets(st.integers(0, 12), max_size=10), min_size=2, max_size=4), st.sampled_from([16, 32]))
@settings(max_examples=100, deadline=None)
def test_tokens_that_agree_in_their_first_words_are_still_told_apart(sets: Any, width: Any) -> None:
    def token(one: Any) -> Any:
        return (one % 3).to_bytes(8, "little") + bytes(width - 16) + one.to_bytes(8, "little")

    held = [sorted(one) for one in sets]
    positions = match_lists({str(i): b"".join(map(token, one)) for i, one in enumerate(held)}, width)
    aligned = [[one[at] for at in positions[str(i)]] for i, one in enumerate(held)]
    assert all(one == aligned[0] for one in aligned)
    assert set(aligned[0]) == set.intersection(*map(set, sets))


def test_a_person_that_two_of_three_parties_hold_is_not_in_the_intersection() -> None:
    made = {
        name: make_pseudonyms(KEY, Packed.of(ids)).tobytes()
        for name, ids in {"a": [b"1", b"2"], "b": [b"2", b"3"], "c": [b"3", b"1"]}.items()
    }
    assert all(len(found) == 0 for found in match_lists(made).values())


@pytest.mark.parametrize("raw", [b"x" * 15, b"x" * 17, b"a" * 16 + b"b" * 16 + b"a" * 16])
def test_truncated_lists_and_repeated_tokens_are_refused(raw: Any) -> None:
    with pytest.raises(Malformed):
        match_lists({"a": raw, "b": bytes(16)})


def test_one_list_alone_is_no_intersection() -> None:
    with pytest.raises(ValueError, match="two lists"):
        match_lists({"a": bytes(16)})


def test_repeated_tokens_are_found_where_they_are() -> None:
    tokens = [os.urandom(16) for _ in range(50)]
    assert find_repeated(b"".join(tokens)) is None
    assert sorted(find_repeated(b"".join([*tokens, tokens[17]])) or ()) == [17, 50]
    near = tokens[3][:8] + bytes(8)
    assert find_repeated(b"".join([*tokens, near])) is None


# What the matcher sees.


def seen(ids: Any, key: Any) -> np.ndarray:
    return make_pseudonyms(key, Packed.of(ids))


def test_pseudonyms_look_uniform_whoever_the_people_are() -> None:
    near = [b"%06d" % i for i in range(20_000)]
    far = [os.urandom(20) for _ in range(20_000)]
    assert uniform_bytes_pvalue(seen(near, os.urandom(32))) > 1e-6
    assert uniform_bytes_pvalue(seen(far, os.urandom(32))) > 1e-6
    words = [seen(ids, os.urandom(32)).view("<u8")[:, 0] / 2.0**64 for ids in (near, far)]
    assert stats.ks_2samp(*words).pvalue > 1e-6


def test_without_a_key_a_dictionary_recognises_everybody() -> None:
    """Positive control: the same attack finds nobody among keyed pseudonyms of a key that it lacks."""
    held = [b"%06d" % i for i in range(500, 1500)]
    dictionary = {hashlib.blake2b(b"%06d" % i, digest_size=16).digest() for i in range(10_000)}
    unkeyed = [hashlib.blake2b(one, digest_size=16).digest() for one in held]
    assert sum(one in dictionary for one in unkeyed) == len(held)
    assert sum(row.tobytes() in dictionary for row in seen(held, os.urandom(32))) == 0


def test_a_key_of_another_run_links_nothing() -> None:
    held = [b"%06d" % i for i in range(2000)]
    first, second = (set(rows(seen(held, os.urandom(32)))) for _ in range(2))
    assert not first & second
