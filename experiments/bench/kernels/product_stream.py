"""A dealer product of two Parquet files in a process of its own, so that its peak memory can be read."""

from __future__ import annotations

import multiprocessing
import resource
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from comity.crypto.products.dealer_product import Layout, Office, Party
from comity.crypto.products.fixed_point import FixedPoint, join_shares
from comity.entropy import Stream, fresh_seed
from experiments.bench.kernels.row_blocks import in_blocks

_BATCH = 1 << 16


@dataclass(frozen=True)
class Streamed:
    """What came out, what the encoded integers give, and what it took."""

    product: NDArray[np.int64]
    exact: NDArray[np.int64]
    peak_mb: float
    bytes: int
    seconds: float


def write(folder: Path, name: str, rows: int, columns: int) -> Path:
    """A Parquet file of uniform numbers in [−1, 1], written and later read batch by batch."""
    path = folder / f"{name}.parquet"
    stream = Stream.public("bench", "product stream", name)
    schema = pa.schema([(f"x{i}", pa.float32()) for i in range(columns)])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, rows, _BATCH):
            values = (2 * stream.uniform((columns, min(_BATCH, rows - start))) - 1).astype(np.float32)
            writer.write_batch(pa.record_batch(list(values), schema=schema))
    return path


def stream_apart(paths: Sequence[Path], rows: int, columns: int) -> Streamed:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_stream, (paths, rows, columns))


def _stream(paths: Sequence[Path], rows: int, columns: int) -> Streamed:
    started = process_time()
    layout = Layout(rows, (columns, columns))
    form = FixedPoint(16)
    seed, office = fresh_seed(), Office(layout)
    parties = [Party(layout, me, seed, [form, form]) for me in range(2)]
    exact = np.zeros((columns, columns), np.int64)
    sent = 0
    for blocks in zip(*(in_blocks(_batches(path), layout.block_rows) for path in paths), strict=True):
        shown = [party.mask(block) for party, block in zip(parties, blocks)]
        office.add(shown)
        sent += sum(message.nbytes for message in shown)
        exact += form.columns(blocks[0], np.int64) @ form.columns(blocks[1], np.int64).T
    hands = office.hands([fresh_seed(), fresh_seed()])
    product = join_shares([parties[0].shares(hands[0])[1], parties[1].shares(hands[1])[0]])
    return Streamed(product, exact, peak_mb(), sent, process_time() - started)


def _batches(path: Path) -> Iterator[NDArray[np.float64]]:
    # Read ahead, the whole file would end up in memory.
    with pq.ParquetFile(path, pre_buffer=False) as file:
        batch: Any
        for batch in file.iter_batches(batch_size=_BATCH):
            yield np.column_stack([column.to_numpy() for column in batch.columns]).astype(np.float64)


def peak_mb() -> float:
    try:
        # The kernel's own figure for this program alone; getrusage would start from the parent's size.
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1000
    except OSError:
        pass
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (1e6 if sys.platform == "darwin" else 1e3)
