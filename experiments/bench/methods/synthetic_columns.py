"""Synthetic data over columns of three owners, from aligned rows to the dataset, beside the same counts in one place.

Ours is everything that a run does in the local runtime: hosts, ledgers, sealed and signed messages, products, noise as
it is released, the secure sum, and then the rows. The anchor counts the same cells in clear. Records are generated in
the cells of Adult's columns: what a product costs does not depend on what it multiplies.
"""

from __future__ import annotations

import resource
from gc import collect
from time import perf_counter, process_time
from typing import Any, get_args

import numpy as np

from comity.data import Records
from comity.entropy import Stream
from comity.errors import ComityError
from comity.methods.synthetic import Synthetic, SyntheticColumnsProtocol
from comity.methods.vertical import ProductMethod
from comity.protocol import Result, Terms, simulate
from experiments.bench.growth import growth_row
from experiments.data.adult import census_schema

ROWS, OWNERS = 44_000, 3
# Seconds of the processor and gigabytes that a run may take with rlwe at this size.
_BAR = "bar 10 s of CPU and 1.5 GB"
_WARM = 300


def measure(*, rows: int = ROWS, quick: bool = False) -> list[dict[str, Any]]:
    """A row for each way to multiply, and how its processor time grows with records. The cheaper one is first, because
    peak memory never falls."""
    most = rows // 10 if quick else rows
    few = max(_WARM, most // 8)
    found = []
    for products in get_args(ProductMethod):
        fewer, measured = _measured(products, few), _measured(products, most)
        costs = [fewer["cpu"], measured["cpu"]]
        found += [measured, growth_row(f"records {few} to {most} {products}", [few, most], costs, "the whole run")]
    return found


def protocol_of(products: ProductMethod, rows: int) -> SyntheticColumnsProtocol:
    """Adult's columns in turn to each owner."""
    schema = census_schema()
    assert schema.target is not None
    names = (*schema.names, schema.target.name)
    held = {f"p{owner}": names[owner::OWNERS] for owner in range(OWNERS)}
    options = {"products": products, "rows": rows, "max_rows": max(rows, 1 << 16)}
    protocol = Synthetic(schema, columns=held, **options).protocol()
    assert isinstance(protocol, SyntheticColumnsProtocol)
    return protocol


def generated(protocol: SyntheticColumnsProtocol, rows: int) -> dict[str, Records]:
    """Uniform cells; the target is the last of its holder's columns."""
    found = {}
    for party in protocol.columns:
        encoding = protocol.encoding_of(party)
        cells = [
            np.floor(Stream.public("bench", "synthetic-columns", name, rows).uniform(rows) * size)
            for name, size in zip(encoding.cells.names, encoding.cells.sizes)
        ]
        labels = cells[-1].astype(np.int64) if encoding.schema.target is not None else None
        found[party] = Records(np.stack(cells, axis=1), labels)
    return found


def _measured(products: ProductMethod, rows: int) -> dict[str, Any]:
    protocol = protocol_of(products, rows)
    # Compilation comes before the clock starts.
    _run(protocol, generated(protocol, _WARM))
    parties = generated(protocol, rows)
    collect()
    wall, cpu = perf_counter(), process_time()
    found = _run(protocol, parties)
    counted = process_time() - cpu
    made = len(found.presented.frame)
    wall, cpu = perf_counter() - wall, process_time() - cpu
    started = perf_counter()
    layout = protocol.counting(found.consortium).layout
    exact = layout.count(protocol.partition.join_records(list(parties.values())).features)
    anchor = perf_counter() - started
    counts = found.presented.counts
    if made != rows or float(np.abs(counts.values - exact).max()) > 8 * counts.deviation:
        raise ComityError(f"{products}: the released counts are far from the exact ones")
    return {
        "case": f"{products} K={OWNERS} {rows}x{layout.width} cells",
        "ours": wall,
        "anchor": anchor,
        "ratio": wall / anchor,
        "unit": "s",
        "repeats": 1,
        "spread": 0.0,
        "better": "lower",
        "cpu": cpu,
        "megabytes": found.transcript.bytes / 1e6,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "note": f"CPU {cpu:.2f} s, {counted:.2f} of it until the counts are open; anchor: the same counts in clear, "
        "columns in one place" + (f"; {_BAR}" if (products, rows) == ("rlwe", ROWS) else ""),
    }


def _run(protocol: SyntheticColumnsProtocol, parties: dict[str, Records]) -> Result:
    return simulate(
        protocol, parties=parties, epsilon=1.0, delta=1e-6, unit="record", terms=Terms(schema=protocol.schema)
    )
