"""A study of a million parties on one machine: time, and memory that does not grow with the number of parties.

There is no toolkit to compare with at this size; the anchor is the same study with a tenth of the parties, scaled, so
that the ratio says whether cost grows in proportion.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np

from comity import Ledger
from comity.entropy import Stream
from comity.methods.softlabel import SoftLabel
from comity.privacy import Neighbours, Pure, SeededNoise, Unit
from comity.protocol import Block, Cohort, Consortium, NumberedParties

RECORDS, FEATURES, AUXILIARY = 10, 20, 500


def measure(*, parties: int = 1_000_000, quick: bool = False) -> list[dict[str, Any]]:
    """Rows: seconds of the whole study against a tenth of it, and the peak memory of this process."""
    if quick:
        parties = min(parties, 50_000)
    tenth, before = _study(parties // 10), _peak()
    ours, after = _study(parties), _peak()
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
    ]


def _study(parties: int) -> float:
    truth = Stream.public("bench", "softlabel-million", "truth").normal(FEATURES)
    consortium = Consortium(
        parties=NumberedParties(parties), loss=Pure(1), unit=Unit.PARTY, neighbours=Neighbours.REPLACE
    )
    auxiliary = _rows(Stream.public("bench", "softlabel-million", "auxiliary"), (AUXILIARY,))
    protocol = SoftLabel.published_over_rows(auxiliary=auxiliary, l2=1e-2, sensitivity="tight")

    def blocks(most: int) -> Iterator[Block]:
        for start in range(0, parties, most):
            count = min(most, parties - start)
            rows = _rows(Stream.public("bench", "softlabel-million", start), (count, RECORDS))
            yield rows, (rows @ truth > 0).astype(np.int64), np.ones((count, RECORDS), bool)

    started = perf_counter()
    ledger = Ledger.in_memory(unit=consortium.unit, neighbours=consortium.neighbours)
    cohort = Cohort(
        protocol, consortium, blocks=blocks, noise=SeededNoise(7), ledger=ledger, study="bench", run="softlabel-million"
    )
    protocol.present(cohort.execute(), consortium)
    return perf_counter() - started


def _rows(stream: Stream, shape: tuple[int, ...]) -> Any:
    rows = stream.normal((*shape, FEATURES))
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
