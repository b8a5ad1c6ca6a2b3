"""Sealed messages of 50 MB: gigabytes per CPU second of sealing and opening, beside the cipher alone.

Sealing is HPKE with the hybrid KEM, as between two parties; the anchor is AES-256-GCM of `cryptography` under a key
that is already there, which allocates its result too. A short message shows what the KEM costs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from statistics import median, stdev
from time import process_time
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from comity.crypto.sealing import Identity

BAR = 1.0
_BYTES = 50_000_000
_SHORT = 1_000
_REPEATS = 9


def measure(*, size: int = _BYTES, quick: bool = False) -> list[dict[str, Any]]:
    """Rows for sealing and opening one long message, in GB/s, and one short, in seconds."""
    repeats = 3 if quick else _REPEATS
    return [*_rows(size, repeats, 1), *_rows(_SHORT, repeats, 100)]


def _rows(size: int, repeats: int, times: int) -> list[dict[str, Any]]:
    someone, cipher, nonce, context = Identity(), AESGCM(os.urandom(32)), bytes(12), bytes(200)
    data = os.urandom(size)
    sealed, locked = someone.public.seal(data, context), cipher.encrypt(nonce, data, context)
    if someone.open(sealed, context) != data:
        raise ArithmeticError("a sealed message opened to something else")
    work: dict[str, tuple[Callable[[], bytes], Callable[[], bytes]]] = {
        "seal": (lambda: someone.public.seal(data, context), lambda: cipher.encrypt(nonce, data, context)),
        "open": (lambda: someone.open(sealed, context), lambda: cipher.decrypt(nonce, locked, context)),
    }
    rows = []
    for name, (ours, anchor) in work.items():
        # In turn, so that a busy moment of the machine meets both.
        pairs = [(_seconds(ours, times), _seconds(anchor, times)) for _ in range(repeats)]
        times_ours, times_anchor = ([pair[i] for pair in pairs] for i in (0, 1))
        make = _rate if times == 1 else _cost
        rows.append(make(f"{name} {size} bytes", size, times_ours, times_anchor) | {"bytes": len(sealed) - size})
    return rows


def _seconds(work: Callable[[], bytes], times: int) -> float:
    started = process_time()
    for _ in range(times):
        work()
    return (process_time() - started) / times


def _rate(case: str, size: int, ours: list[float], anchor: list[float]) -> dict[str, Any]:
    rates = [size / seconds / 1e9 for seconds in ours]
    other = size / median(anchor) / 1e9
    row = _common(case, rates, other) | {"unit": "GB/s", "better": "higher"}
    return row | {"note": f"CPU seconds; bar: {BAR} GB/s; bytes is what the message grows by"}


def _cost(case: str, size: int, ours: list[float], anchor: list[float]) -> dict[str, Any]:
    return _common(case, ours, median(anchor)) | {"unit": "s", "better": "lower", "note": "CPU seconds per message"}


def _common(case: str, ours: list[float], anchor: float) -> dict[str, Any]:
    return {
        "case": case,
        "ours": median(ours),
        "anchor": anchor,
        "anchor_name": "AES-256-GCM alone",
        "ratio": median(ours) / anchor,
        "repeats": len(ours),
        "spread": stdev(ours),
    }
