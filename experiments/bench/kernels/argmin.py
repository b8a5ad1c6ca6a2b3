"""The index of the smallest of 100 shared integers: the online part, its triples, and 1,000 random cases.

The anchor is numpy's argmin of the same values in clear, in the same run; times are CPU seconds of both sides
together, which run in one process.
"""

from __future__ import annotations

from statistics import median, stdev
from time import process_time
from typing import Any

import numpy as np

from comity.crypto.comparisons.argmin import Tournament, argmin
from comity.crypto.comparisons.exchange import Side, Transcript, run_locally
from comity.crypto.comparisons.triples import Triples, deal, read_triples, transfer_triples
from comity.entropy import Stream

_CLEAR = 1000
_REPEATS = 7


def measure(*, candidates: int = 100, cases: int = 1000, quick: bool = False) -> list[dict[str, Any]]:
    """Rows for triples and online part, for the default groups and for one level of all pairs, and for exactness."""
    if quick:
        cases = min(cases, 50)
    stream = Stream.public("bench", "argmin")
    rows = [
        row
        for name, fan_in in (("", Tournament(candidates).fan_in), (" all pairs", max(2, candidates)))
        for row in _costs(name, Tournament(candidates, fan_in=fan_in), stream, 3 if quick else _REPEATS)
    ]
    return [*rows, _exactness(Tournament(candidates), stream, cases)]


def _costs(name: str, tournament: Tournament, stream: Stream, repeats: int) -> list[dict[str, Any]]:
    making, playing, clear = [], [], _in_clear(tournament.count, stream)
    for repeat in range(repeats):
        started = process_time()
        made = run_locally(*(transfer_triples(side, tournament.triples, session=b"bench %d" % repeat) for side in Side))
        making.append(process_time() - started)
        started = process_time()
        played, right = _play(tournament, stream, made.curator, made.parties)
        playing.append(process_time() - started)
        if not right:
            raise ArithmeticError(f"a wrong index came out of {tournament}")
    case = f"K={tournament.count}{name}"
    return [
        _row(
            f"{case} triples",
            making,
            clear,
            f"{tournament.triples} bit triples by oblivious transfer in {made.rounds} messages, base ones included",
        )
        | {"bytes": made.bytes},
        _row(f"{case} online", playing, clear, f"{played.rounds} rounds, groups of {tournament.widths}")
        | {"bytes": played.bytes},
    ]


def _in_clear(count: int, stream: Stream) -> float:
    """CPU seconds of one argmin in clear, the mean of many: one is too short for the clock."""
    values = stream.words(count).view(np.int64)
    started = process_time()
    for _ in range(_CLEAR):
        values.argmin()
    return (process_time() - started) / _CLEAR


def _exactness(tournament: Tournament, stream: Stream, cases: int) -> dict[str, Any]:
    exact = 0
    for _ in range(cases):
        messages = deal(tournament.triples, dealer="bench", sides=("curator", "parties"))
        curator, parties = (read_triples(side, messages[side], tournament.triples) for side in Side)
        exact += _play(tournament, stream, curator, parties)[1]
    return {
        "case": f"K={tournament.count} exact",
        "ours": exact,
        "anchor": cases,
        "anchor_name": "numpy.argmin in clear",
        "ratio": exact / cases,
        "unit": "cases",
        "repeats": cases,
        "spread": 0.0,
        "better": "higher",
        "note": "values from ties everywhere to the whole range; dealt triples",
    }


def _play(
    tournament: Tournament, stream: Stream, curator: Triples, parties: Triples
) -> tuple[Transcript[int | None, int | None], bool]:
    # An arithmetic shift by 1 … 63 places: from the whole range to ties everywhere.
    values = stream.words(tournament.count).view(np.int64) >> (stream.integers(63) + 1)
    share = stream.words(tournament.count)
    done = run_locally(
        argmin(Side.CURATOR, share, curator, tournament),
        argmin(Side.PARTIES, values.view(np.uint64) - share, parties, tournament),
    )
    return done, done.curator == int(values.argmin())


def _row(case: str, seconds: list[float], clear: float, note: str) -> dict[str, Any]:
    return {
        "case": case,
        "ours": median(seconds),
        "anchor": clear,
        "anchor_name": "numpy.argmin in clear",
        "ratio": median(seconds) / clear,
        "unit": "s",
        "repeats": len(seconds),
        "spread": stdev(seconds),
        "better": "lower",
        "note": f"CPU seconds of both sides; {note}",
    }
