"""Masking and unmasking of the secure sum against the plain sum of the same vectors, its set-up, and whole runs.

The rows `PARTIESxLENGTH` count one party's masks and its part of the unmasking, beside numpy's sum of all parties'
vectors: what one of them computes. The rows `…, all parties` count the masks of all of them and the whole unmasking
beside the same sum.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

from comity.crypto import masks, shamir
from comity.crypto.sealing import Identity, lock, unlock
from comity.crypto.share_holders import choose_degree
from comity.entropy import Stream, derive, fresh_seed
from experiments.bench.kernels.securesum_runs import measure_runs


def measure(*, parties: int = 100, length: int = 100_000, quick: bool = False) -> list[dict[str, Any]]:
    """CPU seconds of one party's masking, of the coordinator's unmasking per party, and of one party's set-up.

    The kernels are those that the steps of `comity.federation.sum.site` call, on vectors of `length` 32-
    and 64-bit words in the complete graph of `parties`. Then whole runs, by parties and by numbers.
    """
    if quick:
        parties, length = min(parties, 30), min(length, 20_000)
    repeats = 3 if quick else 7
    rows = []
    for name, dtype in (("", "<u8"), (" 32-bit words", "<u4")):
        vectors = [_vector(dtype, length, k) for k in range(parties)]
        seeds = [derive(fresh_seed(), k) for k in range(parties)]
        plain, both = [], []
        for _ in range(repeats):
            # In turn, so that a busy moment of the machine meets both.
            plain.append(_cpu(lambda vectors=vectors: _plain(vectors)))
            masking = _cpu(lambda v=vectors[0], s=seeds: _mask(v, s))
            both.append(masking + _cpu(lambda v=vectors[0], s=seeds: _mask(v, s)) / parties)
        case = f"{parties}x{length}{name}"
        rows.append(_row(case, both, plain, "one party's masks, and its part of the coordinator's unmasking"))
        rows.append(_all_parties(case, vectors, seeds, plain, 1 if quick else 3))
    lost = parties // 3
    words = [_vector("<u4", length, k) for k in range(parties)]
    removing = [_cpu(lambda: _mask(words[0], seeds[: parties - lost])) * lost / parties for _ in range(repeats)]
    rows.append(
        _row(
            f"{parties}x{length} recover a third",
            removing,
            [_cpu(lambda: _plain(words)) for _ in range(repeats)],
            "the coordinator takes the lost parties' pair masks off; per party",
        )
    )
    set_up = [_cpu(lambda: _set_up(parties)) for _ in range(repeats)]
    rows.append(
        _row(f"{parties} set-up", set_up, None, "one party's seals, openings, shares, signatures; once per run")
    )
    return [*rows, *measure_runs(quick=quick)]


def _all_parties(case: str, vectors: list[Any], seeds: list[bytes], plain: list[float], repeats: int) -> dict[str, Any]:
    both, walls = [], []
    for _ in range(repeats):
        began = perf_counter()
        masked = sum(_cpu(lambda vector=vector: _mask(vector, seeds)) for vector in vectors)
        both.append(masked + _cpu(lambda: _mask(vectors[0], seeds)))
        walls.append(perf_counter() - began)
    row = _row(f"{case}, all parties", both, plain, "every party's masks, and the coordinator's unmasking")
    return row | {"wall": median(walls)}


def _vector(dtype: str, length: int, label: int) -> Any:
    return Stream.public("bench", "securesum", label).words(length).astype(dtype)


def _plain(vectors: list[Any]) -> Any:
    total = np.zeros_like(vectors[0])
    for vector in vectors:
        total += vector
    return total


def _mask(vector: Any, seeds: list[bytes]) -> Any:
    total = vector.copy()
    for seed in seeds:
        masks.add(total, seed)
    return total


def _set_up(parties: int) -> None:
    threshold = choose_degree(parties, 1, parties // 3 if parties > 8 else 0).threshold
    fresh, pinned = Identity(), Identity()
    pinned.sign(fresh.public.sealing())
    shares = [shamir.split(fresh_seed(), threshold, range(1, parties + 1)) for _ in range(2)]
    for point in range(1, parties):
        # Half of the pair seeds are dealt, half received; every letter is sealed and signed, opened and verified.
        box = pinned.public.seal(shares[0][point] + shares[1][point], b"shares")
        pinned.public.verify(pinned.sign(box), box)
        pinned.open(box, b"shares")
        if point % 2:
            fresh.open(fresh.public.seal(fresh_seed(), b"seed"), b"seed")
    key = fresh_seed()
    unlock(key, lock(key, bytes(32 * parties), b"will"), b"will")


def _cpu(work: Any) -> float:
    started = process_time()
    work()
    return process_time() - started


def _row(case: str, seconds: list[float], anchors: list[float] | None, note: str) -> dict[str, Any]:
    ours = median(seconds)
    anchor = None if anchors is None else median(anchors)
    return {
        "case": case,
        "ours": ours,
        "anchor": anchor,
        "ratio": None if anchor is None else ours / anchor,
        "unit": "s",
        "repeats": len(seconds),
        "spread": max(seconds) - min(seconds),
        "better": "lower",
        "note": note + "; CPU seconds; anchor: numpy's sum of the plain vectors" * (anchor is not None),
    }
