"""Ids per CPU second of private set intersection between two parties, everything that happens to an id included.

Keyed pseudonyms: canonical bytes, hash, search for repeated ids, secret order, matching, common order. The anchors are
the hash in a loop over the standard library, and the intersection in clear. Blinded points: hash to the curve, two
multiplications, matching; the anchor is `openmined.psi` (Diffie-Hellman on P-256 in C++), where it is installed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib import import_module
from statistics import median, stdev
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.crypto import psi_ecdh, psi_keyed
from comity.entropy import Stream, fresh_seed
from comity.methods.by_columns.token_list import canonicalise_ids, require_distinct
from experiments.bench.growth import growth_row

KEYED_BAR = 1_000_000
_KEYED = 1_000_000
_BLINDED = 4_000
_REPEATS = 5
_OPENMINED = "private_set_intersection.python"

Ids = NDArray[np.object_]


def measure(*, keyed: int = _KEYED, blinded: int = _BLINDED, quick: bool = False) -> list[dict[str, Any]]:
    """Rows for pseudonyms alone, the keyed intersection and the blinded one, and how these two grow with identifiers.
    Half of each list is common."""
    repeats = 3 if quick else _REPEATS
    if quick:
        keyed, blinded = min(keyed, 200_000), min(blinded, 1_000)
    # The compiled hash is made ready before the clock starts, as it is in every run but the first on a machine.
    psi_keyed.make_pseudonyms(bytes(32), canonicalise_ids(_people(psi_keyed.COMPILED_FROM, 0)))
    rows = [_hash(keyed, repeats)]
    for kind, count, work in (("keyed", keyed, _keyed), ("ecdh", blinded, _ecdh)):
        few = count // 8
        fewer, most = work(few, repeats), work(count, repeats)
        costs = [2 * ids / row["ours"] for ids, row in ((few, fewer), (count, most))]
        note = "both parties and the coordinator"
        rows += [most, growth_row(f"ids {few} to {count}, {kind}", [few, count], costs, note) | {"repeats": repeats}]
    return rows


def _people(count: int, first: int) -> Ids:
    out = np.empty(count, object)
    out[:] = [f"patient-{one:09d}" for one in range(first, first + count)]
    return out


def _lists(count: int) -> tuple[Ids, Ids]:
    return _people(count, 0), _people(count, count // 2)


def _hash(count: int, repeats: int) -> dict[str, Any]:
    ids, key = canonicalise_ids(_people(count, 0)), fresh_seed()
    texts = list(ids)

    def anchor() -> None:
        for one in texts:
            hashlib.blake2b(one, key=key, digest_size=psi_keyed.PSEUDONYM_BYTES).digest()

    ours, anchors = _in_turn(lambda: psi_keyed.make_pseudonyms(key, ids), anchor, repeats)
    return _row(f"keyed: pseudonyms of {count} ids", count, ours, anchors, "hashlib.blake2b in a loop")


def _keyed(count: int, repeats: int) -> dict[str, Any]:
    lists = _lists(count)

    def ours() -> None:
        key = fresh_seed()
        width, orders, tokens = psi_keyed.PSEUDONYM_BYTES, [], {}
        for place, ids in enumerate(lists):
            made = psi_keyed.make_pseudonyms(key, canonicalise_ids(ids, 0))
            require_distinct(made.tobytes(), width=width)
            orders.append(np.argsort(Stream(fresh_seed()).words(len(ids))))
            tokens[str(place)] = made.take(orders[-1], axis=0).tobytes()
        rows = [order[at] for order, at in zip(orders, psi_keyed.match_lists(tokens, width).values(), strict=True)]
        _check(lists, rows)

    def anchor() -> None:
        places = {one: place for place, one in enumerate(lists[1])}
        found = [(row, places[one]) for row, one in enumerate(lists[0]) if one in places]
        _check(lists, list(np.array(found).T))

    note = f"bar: {KEYED_BAR:,} ids/s; {psi_keyed.PSEUDONYM_BYTES} bytes per id and party to the coordinator"
    row = _row(f"keyed: 2 x {count} ids", 2 * count, *_in_turn(ours, anchor, repeats), "a dict, in clear", note)
    return row | {"bytes": 2 * count * psi_keyed.PSEUDONYM_BYTES}


def _ecdh(count: int, repeats: int) -> dict[str, Any]:
    lists = _lists(count)

    def ours() -> None:
        secrets = [psi_ecdh.fresh_secret() for _ in lists]
        tokens = {}
        for place, ids in enumerate(lists):
            once = psi_ecdh.blind(secrets[place], psi_ecdh.hash_to_points(canonicalise_ids(ids)))
            tokens[str(place)] = psi_ecdh.blind(secrets[1 - place], once)
        _check(lists, list(psi_keyed.match_lists(tokens, psi_ecdh.POINT_BYTES).values()))

    theirs = _openmined([list(ids) for ids in lists])
    note = "each list is blinded by both parties; points checked on receipt"
    if theirs is None:
        note += "; openmined.psi is not installed (the bench extra brings it where it has wheels)"
    row = _row(f"ecdh: 2 x {count} ids", 2 * count, *_in_turn(ours, theirs, repeats), "openmined.psi", note)
    return row | {"bytes": 2 * 2 * count * psi_ecdh.POINT_BYTES}


def _openmined(lists: list[list[str]]) -> Callable[[], None] | None:
    try:
        psi = import_module(_OPENMINED)
    except ImportError:
        return None

    def run() -> None:
        client, server = psi.client.CreateWithNewKey(True), psi.server.CreateWithNewKey(True)
        offered = server.CreateSetupMessage(0.0, len(lists[0]), lists[1], psi.DataStructure.RAW)
        answer = server.ProcessRequest(client.CreateRequest(lists[0]))
        if len(client.GetIntersection(offered, answer)) != len(lists[0]) - len(lists[0]) // 2:
            raise ArithmeticError("openmined.psi found another intersection")

    return run


def _check(lists: tuple[Ids, Ids], rows: list[NDArray[np.int64]]) -> None:
    same = lists[0][rows[0][:1000]] == lists[1][rows[1][:1000]]
    if len(rows[0]) != len(lists[0]) - len(lists[0]) // 2 or not np.all(same):
        raise ArithmeticError("the lists were matched wrongly")


def _in_turn(
    ours: Callable[[], Any], anchor: Callable[[], Any] | None, repeats: int
) -> tuple[list[float], list[float]]:
    """CPU seconds of both, in turn, so that a busy moment of the machine meets both."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for kept, work in zip(times, (ours, anchor), strict=True):
            if work is not None:
                started = process_time()
                work()
                kept.append(process_time() - started)
    return times


def _row(
    case: str, ids: int, ours: list[float], anchors: list[float], anchor_name: str, note: str = ""
) -> dict[str, Any]:
    rates = [ids / seconds for seconds in ours]
    anchor = ids / median(anchors) if anchors else None
    return {
        "case": case,
        "ours": median(rates),
        "anchor": anchor,
        "anchor_name": anchor_name,
        "ratio": None if anchor is None else median(rates) / anchor,
        "unit": "ids/s",
        "repeats": len(rates),
        "spread": stdev(rates),
        "better": "higher",
        "note": "; ".join(filter(None, ("per CPU second of all parties and the coordinator", note))),
    }
