"""A study of a million parties on one machine: time, and memory that does not grow with the number of parties.

There is no toolkit to compare with at this size; the anchor is the same study with a tenth of the parties, scaled, so
that the ratio says whether cost grows in proportion. All parties' fits, votes and noise are counted; masks, messages
and a ledger for each party are not, since parties are simulated in stacks. The rows `study` and `memory` are of the
published vote, in wall-clock time; the rows `CPU` have processor time, also of the default method.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from time import perf_counter, process_time
from typing import Any

import numpy as np

from comity import Ledger
from comity.entropy import Stream
from comity.methods.softlabel import SoftLabel
from comity.privacy import Neighbours, Pure, SeededNoise, Unit
from comity.protocol import Block, Cohort, Consortium, NumberedParties
from experiments.bench.growth import growth_row

RECORDS, FEATURES, AUXILIARY = 10, 20, 500


def measure(*, parties: int = 1_000_000, quick: bool = False) -> list[dict[str, Any]]:
    """Rows: seconds of the whole study against a tenth of it, and the peak memory of this process."""
    if quick:
        parties = min(parties, 50_000)
    for published in (True, False):
        # Imports and compilation would make the tenth dear.
        _study(100, published=published)
    (tenth, tenth_cpu), before = _study(parties // 10), _peak()
    (ours, cpu), after = _study(parties), _peak()
    (_, least), (default, most) = (_study(count, published=False) for count in (parties // 10, parties))
    sizes = (parties // 10, parties)
    common = {"repeats": 1, "spread": 0.0, "better": "lower"}
    case = f"{parties}x{RECORDS}x{FEATURES}"
    note = f"anchor: {parties // 10} parties, times ten; {AUXILIARY} public records, records generated block by block"
    return [
        {"case": f"study {case}", "ours": ours, "anchor": 10 * tenth, "ratio": ours / (10 * tenth), "unit": "s"}
        | common
        | {"note": note},
        {"case": f"memory {case}", "ours": after, "anchor": before, "ratio": after / before, "unit": "MB"}
        | common
        | {"note": "peak of the process; anchor: peak after a tenth of the parties"},
        _cpu_row(f"CPU study {case}", cpu, 10 * tenth_cpu, f"{note}; published vote", ours),
        _cpu_row(f"CPU study default {case}", most, 10 * least, f"{note}; the default method", default),
        growth_row("parties, published", sizes, (tenth_cpu, cpu), "stacks of parties, no masks"),
        growth_row("parties, default", sizes, (least, most), "stacks of parties, no masks"),
    ]


def _cpu_row(case: str, cpu: float, anchor: float, note: str, wall: float) -> dict[str, Any]:
    row = {"case": case, "ours": cpu, "anchor": anchor, "ratio": cpu / anchor, "unit": "CPU s", "wall": wall}
    return {**row, "repeats": 1, "spread": 0.0, "better": "lower", "note": note}


def _study(parties: int, *, published: bool = True) -> tuple[float, float]:
    """Seconds by the wall clock and of the processor."""
    truth = Stream.public("bench", "softlabel-million", "truth").normal(FEATURES)
    consortium = Consortium(
        parties=NumberedParties(parties), loss=Pure(1), unit=Unit.PARTY, neighbours=Neighbours.REPLACE
    )
    auxiliary = _rows(Stream.public("bench", "softlabel-million", "auxiliary"), (AUXILIARY,))
    protocol: Any = (
        SoftLabel.published_over_rows(auxiliary=auxiliary, l2=1e-2, sensitivity="tight")
        if published
        else SoftLabel.over_rows(auxiliary=auxiliary)
    )

    def blocks(most: int) -> Iterator[Block]:
        for start in range(0, parties, most):
            count = min(most, parties - start)
            rows = _rows(Stream.public("bench", "softlabel-million", start), (count, RECORDS))
            yield rows, (rows @ truth > 0).astype(np.int64), np.ones((count, RECORDS), bool)

    started, began = perf_counter(), process_time()
    ledger = Ledger.in_memory(unit=consortium.unit, neighbours=consortium.neighbours)
    cohort = Cohort(
        protocol, consortium, blocks=blocks, noise=SeededNoise(7), ledger=ledger, study="bench", run="softlabel-million"
    )
    protocol.present(cohort.execute(), consortium)
    return perf_counter() - started, process_time() - began


def _rows(stream: Stream, shape: tuple[int, ...]) -> Any:
    rows = stream.normal((*shape, FEATURES))
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
