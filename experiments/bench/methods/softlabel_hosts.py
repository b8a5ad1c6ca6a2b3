"""One soft-label simulation with a real host for each party: ledgers, keys, sealed letters, signatures, masks, noise.

Counted is the processor time of all participants, which share this process. The anchor is the same run as stacks of
parties, without hosts and messages.
"""

from __future__ import annotations

from math import log
from time import process_time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from comity.data import Records
from comity.entropy import Stream
from comity.methods.softlabel import SoftLabel
from comity.protocol import RunOptions, simulate

FEATURES, RECORDS, PUBLIC = 20, 22, 500
BARS = {300: 4.0, 600: 8.0}


def measure(*, quick: bool = False) -> list[dict[str, Any]]:
    """Rows `hosts K`: processor seconds of a run over K hosts."""
    with threadpool_limits(1, user_api="blas"):
        # The first loads libraries and compiled functions.
        _run(20, hosts=True)
        rows: list[dict[str, Any]] = []
        for parties in (100,) if quick else (300, 600):
            ours, anchor = _run(parties, hosts=True), _run(parties, hosts=False)
            bar = f"; bar: {BARS[parties]} s" if parties in BARS else ""
            rows.append(
                {
                    "case": f"hosts {parties}",
                    "ours": ours,
                    "anchor": anchor,
                    "anchor_name": "as stacks, without hosts",
                    "ratio": ours / anchor,
                    "unit": "s of processor time",
                    "better": "lower",
                    "note": f"all participants of a run{bar}",
                }
            )
    if len(rows) > 1:
        exponent = log(rows[1]["ours"] / rows[0]["ours"]) / log(2)
        rows[1]["note"] += f"; exponent {exponent:.2f}"
    return rows


def _run(parties: int, *, hosts: bool) -> float:
    stream = Stream.public("bench", "softlabel hosts")
    records = {}
    for number in range(parties):
        rows = (2 * stream.uniform((RECORDS, FEATURES)) - 1) / FEATURES**0.5
        records[f"p{number:04}"] = Records(rows, (rows[:, 0] > 0).astype(np.int64))
    public = (2 * stream.uniform((PUBLIC, FEATURES)) - 1) / FEATURES**0.5
    protocol = SoftLabel.over_rows(
        auxiliary=public, classes=("0", "1"), statistic="votes", sizes=RECORDS, local_l2=1e-2
    )
    started = process_time()
    options = RunOptions(baselines=False, hosts=hosts)
    simulate(protocol, parties=records, epsilon=1, delta=1e-6, unit="party", options=options)
    return process_time() - started
