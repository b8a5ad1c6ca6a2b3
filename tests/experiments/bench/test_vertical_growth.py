"""Time and memory of whole runs at the sizes that are promised, each in a process of its own.

Seconds are those of the CPU, over all threads: what a run takes on an idle machine is no more, and other work on the
machine does not count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.crypto.products import dealer_product
from comity.methods.by_columns import products as product
from experiments.bench.methods.vertical_growth import (
    BARS,
    GROWTH,
    Size,
    draw,
    generated,
    in_clear,
    measured,
    pooled,
    protocol_of,
    simulated,
    sizes,
)

_ALONE = """
import json, sys
from experiments.bench.methods.vertical_growth import Size, measured
print(json.dumps(measured(Size(*json.loads(sys.argv[1])), 1)))
"""


def alone(size: Any) -> Any:
    asked = json.dumps([size.parties, size.rows, size.features, size.products])
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    found = subprocess.run(
        [sys.executable, "-c", _ALONE, asked],
        cwd=Path(__file__).parents[3],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(found.stdout)


@pytest.mark.long
@pytest.mark.parametrize("size", BARS, ids=str)
def test_a_run_stays_below_its_bar(size: Any) -> None:
    row = alone(size)
    assert row["cpu"] < size.seconds, row
    if size.gigabytes is not None:
        assert row["peak_gb"] < size.gigabytes, row


@pytest.mark.long
def test_memory_grows_by_what_the_rows_take_and_no_more() -> None:
    """A row is held as numbers, and its masked form once by its site and once by the journal."""
    small, large = (alone(Size(8, rows, 100, "dealer")) for rows in (100_000, 300_000))
    held = 200_000 * 8 * 101
    assert 1e9 * (large["peak_gb"] - small["peak_gb"]) < 4.5 * held


def test_stretches_do_not_change_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit, when the noise is the same."""
    protocol, parties = protocol_of(3, 5, "dealer"), generated(3, 1700, 5)

    def model() -> Any:
        from comity.study.simulation.simulate import Terms, simulate

        found = simulate(
            protocol,
            parties=parties,
            epsilon=1.0,
            delta=1e-6,
            unit="record",
            seed=5,
            terms=Terms(schema=protocol.schema, hash="7" * 64),
        )
        return found.released["model"], [line.path for line in found.transcript if line.path.startswith("product.")]

    whole, once = model()
    monkeypatch.setattr(dealer_product, "_BLOCK_WORDS", 512)
    monkeypatch.setattr(product, "STRETCH", 1)
    split_boxes, often = model()
    assert len(once) == 2 * 3 and len(often) == 2 * 6
    np.testing.assert_array_equal(split_boxes, whole)


def test_the_anchor_solves_the_same_problem() -> None:
    parties = generated(3, 5000, 7)
    columns, labels = pooled(parties, slice(None))
    exact, seconds = in_clear(parties, 7)
    np.testing.assert_allclose(exact, np.linalg.lstsq(columns, labels, rcond=None)[0], atol=1e-10)
    assert seconds > 0 and np.abs(columns).max() <= 1 and np.abs(labels).max() <= 1
    model = np.asarray(simulated(protocol_of(3, 7, "dealer"), parties).released["model"])
    assert np.abs(model[:-1] - exact).max() < 0.2


def test_every_size_is_measured_once_and_drawn(tmp_path: Path) -> None:
    named = [str(size) for size in sizes()]
    assert len(set(named)) == len(named) and {str(size) for size in BARS} <= set(named)
    row = measured(Size(2, 400, 3, "dealer"), 1)
    assert row["ours"] > row["anchor"] > 0 and row["megabytes"] > 400 * 4 * 8 / 1e6
    along = [Size(*size, how) for axis in GROWTH.values() for size in axis for how in ("rlwe", "dealer")]
    text = draw(tmp_path, [{"case": str(size), "ours": 2.0, "anchor": 1.0} for size in along]).read_text()
    assert all(f"<!-- {axis} -->" in text for axis in GROWTH)
