from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from scipy import stats

from comity.entropy import Stream, derive, fresh_seed


def test_a_stream_is_the_same_everywhere_and_continues() -> None:
    whole = Stream(b"s" * 32).words(1000)
    parts = Stream(b"s" * 32)
    np.testing.assert_array_equal(np.concatenate([parts.words(1), parts.words(999)]), whole)
    big = Stream(b"s" * 32).words(100_000)
    np.testing.assert_array_equal(big[:1000], whole)


def test_labels_do_not_collide() -> None:
    seeds = {derive(b"k", *label) for label in [("a", "b"), ("ab",), ("a", b"b"), ("", "ab"), ("a", 1), ("a", "1"), ()]}
    assert len(seeds) == 7
    assert derive(b"k", "a") != derive(b"l", "a")


@pytest.mark.parametrize("secret", [b"", b"k", b"k" * 32, b"k" * 200])
def test_purposes_are_separated_by_the_standard_derivation(secret: Any) -> None:
    info = b"\0\0\0\2sa" + b"\0\0\0\3i17" + b"\0\0\0\3bxy"
    standard = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(secret)
    assert derive(secret, "a", 17, b"xy") == standard


def test_fresh_seeds_differ_and_seeds_have_32_bytes() -> None:
    assert fresh_seed() != fresh_seed()
    with pytest.raises(ValueError, match="32 bytes"):
        Stream(b"short")


def test_distributions() -> None:
    stream = Stream.public("test", 1)
    assert stats.kstest(stream.uniform(20_000), "uniform").pvalue > 1e-6
    assert stats.kstest(stream.normal(20_000), "norm").pvalue > 1e-6
    counts = np.bincount(stream.integers(7, 70_000), minlength=7)
    assert stats.chisquare(counts).pvalue > 1e-6
    assert sorted(stream.permutation(500)) == list(range(500))
    firsts = [int(stream.permutation(4)[0]) for _ in range(4000)]
    assert stats.chisquare(np.bincount(firsts, minlength=4)).pvalue > 1e-6
    chosen = np.bincount(stream.choice([1.0, 0.0, 3.0], 40_000), minlength=3)
    assert chosen[1] == 0 and stats.chisquare(chosen[[0, 2]], [10_000, 30_000]).pvalue > 1e-6


def test_expansion_is_fast() -> None:
    stream = Stream(fresh_seed())
    best = min(_seconds(stream) for _ in range(5))
    assert 8 * (1 << 22) / best > 0.2e9  # bytes per second; a loaded machine still does this


def _seconds(stream: Stream) -> float:
    started = time.perf_counter()
    stream.words(1 << 22)
    return time.perf_counter() - started
