"""Paillier operations in CPU seconds, beside the package `phe` on the same modulus in the same run.

`phe` uses gmpy2 for its powers too, so the ratio is of the algorithms. Ours and the anchor take turns, so that a busy
moment of the machine meets both; each figure is the median over the turns. Building a key's table is not in the figures
of single operations: it happens once per key and has a row of its own.
"""

from __future__ import annotations

import importlib
import secrets
import statistics
import time
from collections.abc import Callable
from typing import Any

from comity.crypto.paillier.cryptosystem import PrivateKey
from comity.crypto.paillier.packing import Packing
from comity.crypto.paillier.threshold import combine, split

_VALUE_BITS = 32
_TERMS = 100
_PARTIES = 3
_MISSING = "phe is not installed: the `bench` extra brings it"


def measure(*, quick: bool = False) -> list[dict[str, Any]]:
    """Rows for both key sizes: encryption, decryption, packed vectors per number, and the costs around them."""
    return [row for bits in (2048, 3072) for row in _rows(bits, turns=5 if quick else 15)]


def _rows(bits: int, turns: int) -> list[dict[str, Any]]:
    key = PrivateKey.generate(bits)
    public = key.public
    anchor = _Anchor(key)
    table = _seconds(lambda: public.encrypt(0), 1)
    public.rerandomise(public.encrypt(0))
    number = secrets.randbits(30)
    sent = public.encrypt(number)
    packing = Packing(public, _VALUE_BITS, _TERMS)
    vector = [secrets.randbelow(2 * packing.limit + 1) - packing.limit for _ in range(8 * packing.slots)]
    shares = split(key, _PARTIES)
    partials = {share.party: share.partial(sent) for share in shares}
    assert key.decrypt(sent) == combine(public, _PARTIES, partials) == number
    assert packing.decrypt(key, packing.encrypt(vector)) == vector
    cpu = "CPU seconds"
    return [
        _row(f"encrypt {bits}", turns, lambda: public.encrypt(number), 10, anchor.encrypt, 1, note=cpu),
        _row(f"decrypt {bits}", turns, lambda: key.decrypt(sent), 2, anchor.decrypt, 2, note=f"{cpu}, blinded"),
        _row(
            f"packed encrypt {bits}, per number",
            turns,
            lambda: packing.encrypt(vector),
            1,
            anchor.encrypt,
            1,
            numbers=len(vector),
            note=f"{cpu}; {packing.slots} slots of {_VALUE_BITS}-bit values, room for {_TERMS} terms; phe packs none",
        )
        | {"bytes": packing.ciphertexts(len(vector)) * public.ciphertext_bytes / len(vector)},
        _row(f"re-randomise {bits}", turns, lambda: public.rerandomise(sent), 4, None, 1, note=cpu),
        _row(f"partial decrypt {bits}", min(turns, 5), lambda: shares[0].partial(sent), 1, None, 1, note=cpu)
        | {"bytes": public.ciphertext_bytes},
        _row(f"combine {bits}, K={_PARTIES}", turns, lambda: combine(public, _PARTIES, partials), 4, None, 1, note=cpu),
        _result(f"first encryption {bits}", [table], [], note=f"{cpu}; builds the table, once per key"),
    ]


class _Anchor:
    """phe's encryption and decryption under the same primes, or nothing."""

    def __init__(self, key: PrivateKey) -> None:
        self.encrypt: Callable[[], object] | None = None
        self.decrypt: Callable[[], object] | None = None
        try:
            phe: Any = importlib.import_module("phe")
        except ImportError:
            return
        public = phe.PaillierPublicKey(int(key.public.n))
        private = phe.PaillierPrivateKey(public, int(key.p), int(key.q))
        number = public.encrypt(123456789)
        self.encrypt = lambda: public.encrypt(123456789)
        self.decrypt = lambda: private.decrypt(number)


def _row(
    case: str,
    turns: int,
    ours: Callable[[], object],
    times: int,
    anchor: Callable[[], object] | None,
    anchor_times: int,
    *,
    numbers: int = 1,
    note: str,
) -> dict[str, Any]:
    mine, theirs = [], []
    for _ in range(turns):
        mine.append(_seconds(ours, times) / numbers)
        if anchor:
            theirs.append(_seconds(anchor, anchor_times))
    return _result(case, mine, theirs, note=note)


def _result(case: str, mine: list[float], theirs: list[float], *, note: str) -> dict[str, Any]:
    ours = statistics.median(mine)
    anchor = statistics.median(theirs) if theirs else None
    compared = case.startswith(("encrypt", "decrypt", "packed"))
    return {
        "case": case,
        "ours": ours,
        "anchor": anchor,
        "anchor_name": "phe" if anchor else None,
        "ratio": anchor / ours if anchor else None,
        "unit": "s",
        "repeats": len(mine),
        "spread": statistics.stdev(mine) if len(mine) > 1 else 0.0,
        "better": "higher",
        "note": f"{note}; {_MISSING}" if compared and not anchor else note,
    }


def _seconds(call: Callable[[], object], times: int) -> float:
    started = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - started) / times
