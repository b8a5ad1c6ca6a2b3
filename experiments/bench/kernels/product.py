"""Secure products of two parties' matrices, beside numpy's product of the same matrices in clear.

Times are CPU seconds on one thread: in the rows `dealer` those of the busier party (encoding, masking, its matrix
product), in the rows `dealer …, all three` those of both parties and the coordinator, in the rows `rlwe` those of both
parties together. `wall` is the time from the first step to the last, all of them in turn in one process. Every result
is compared with the product of the encoded integers; one wrong entry stops the measurement. Compilation comes before
the clock starts.
"""

from __future__ import annotations

import importlib
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from comity.crypto.products import dealer_product, rlwe_product
from comity.crypto.products.fixed_point import FixedPoint, join_shares, lower_from_word, raise_to_word
from comity.entropy import Stream, fresh_seed
from experiments.bench.growth import growth_row
from experiments.bench.kernels.product_stream import stream_apart, write

_DEALER = ((92_500, 7), (370_000, 7), (370_000, 14), (100_000, 100))
_RLWE = ((100_000, 7, 12), (370_000, 7, 12), (100_000, 7, 16))
_STREAMED = 10_000_000

Matrix = NDArray[np.float64]


def measure(*, quick: bool = False) -> list[dict[str, Any]]:
    """Rows for both products at the sizes of the bars, for CKKS, and for the memory of a long stream."""
    repeats = 2 if quick else 9
    shrink = 10 if quick else 1
    with threadpool_limits(1):
        sizes = [(rows // shrink, columns) for rows, columns in _DEALER]
        dealt = [_measure_dealer(rows, columns, repeats) for rows, columns in sizes]
        ours = [_measure_rlwe(rows // shrink, columns, places, repeats) for rows, columns, places in _RLWE]
        beside = _measure_ckks(ours[0], _RLWE[0][0] // shrink, _RLWE[0][1])
    growth = _growth([(*size, everybody["ours"]) for size, (_, everybody) in zip(sizes, dealt)])
    return [
        *(row for pair in dealt for row in pair),
        *growth,
        *ours,
        beside,
        _measure_stream(_STREAMED // (10 * shrink) if quick else _STREAMED),
    ]


def _growth(costs: Sequence[tuple[int, int, float]]) -> list[dict[str, Any]]:
    """By records and by columns, from the rows with the columns, or the records, of the second size."""
    if len(costs) < 3:
        return []
    rows, columns, _ = costs[1]
    by_rows = {size: cost for size, wide, cost in costs if wide == columns}
    by_columns = {wide: cost for size, wide, cost in costs if size == rows}
    counted = "both parties and the coordinator"
    return [
        growth_row(f"records, dealer x{columns}, all three", list(by_rows), list(by_rows.values()), counted),
        growth_row(f"columns, dealer {rows}, all three", list(by_columns), list(by_columns.values()), counted),
    ]


@dataclass(frozen=True)
class _Turn:
    """One run in one process: CPU seconds of each side, CPU seconds that count, bytes between the parties, and
    wall-clock time."""

    seconds: tuple[float, ...]
    counted: float
    bytes: int
    wall: float


def _matrices(rows: int, columns: int) -> tuple[Matrix, Matrix]:
    stream = Stream.public("bench", "product", rows, columns)
    one, two = (2 * stream.uniform((rows, columns)) - 1 for _ in range(2))
    return one, two


def _measure_dealer(rows: int, columns: int, repeats: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A row of the busier party, and one of all three."""
    layout = dealer_product.Layout(rows, (columns, columns))
    x, y = _matrices(rows, columns)
    form = FixedPoint(16)
    exact = _encoded(form, x, y)
    _dealer_turn(dealer_product.Layout(1000, (columns, columns)), (x[:1000], y[:1000]), form, None)
    turns = [(_clear(x, y), _dealer_turn(layout, (x, y), form, exact)) for _ in range(repeats)]
    dealing = statistics.median(turn.seconds[2] for _, turn in turns)
    case, bytes_said = f"dealer {rows}x{columns}", {"formula_bytes": layout.shown_bytes}
    note = f"CPU of the busier party, 16 binary places; the coordinator's own: {dealing:.4f} s"
    everybody = [(clear, replace(turn, counted=sum(turn.seconds))) for clear, turn in turns]
    return (
        _row(case, turns, note) | bytes_said,
        _row(f"{case}, all three", everybody, "CPU of both parties and the coordinator, 16 binary places") | bytes_said,
    )


def _dealer_turn(
    layout: dealer_product.Layout, matrices: Sequence[Matrix], form: FixedPoint, exact: NDArray[np.int64] | None
) -> _Turn:
    began = perf_counter()
    seed, office = fresh_seed(), dealer_product.Office(layout)
    parties = [dealer_product.Party(layout, me, seed, [form, form]) for me in range(2)]
    seconds, working, sent, at = [0.0, 0.0], 0.0, 0, 0
    for rows in layout.blocks():
        shown = []
        for me, party in enumerate(parties):
            started = process_time()
            shown.append(party.mask(matrices[me][at : at + rows]))
            seconds[me] += process_time() - started
        started = process_time()
        office.add(shown)
        working += process_time() - started
        at += rows
        sent += sum(message.nbytes for message in shown)
    hands = office.hands([fresh_seed() for _ in parties])
    wall = perf_counter() - began
    _compare(join_shares([parties[0].shares(hands[0])[1], parties[1].shares(hands[1])[0]]), exact)
    return _Turn((*seconds, working), max(seconds), sent, wall)


def _measure_rlwe(rows: int, columns: int, places: int, repeats: int) -> dict[str, Any]:
    x, y = _matrices(rows, columns)
    form = FixedPoint(places)
    exact = _encoded(form, x, y)
    _rlwe_turn((x[:100], y[:100]), form, None)
    turns = [(_clear(x, y), _rlwe_turn((x, y), form, exact)) for _ in range(repeats)]
    plan = rlwe_product.Plan.choose(rows, columns, columns, form, form)
    encryptor, evaluator = (statistics.median(turn.seconds[side] for _, turn in turns) for side in range(2))
    note = (
        f"CPU of both parties, N={plan.parameters.degree}, q=2^{plan.parameters.modulus}, shares of {plan.bits} "
        f"bits, carry probability {plan.carry_probability:.1e}; "
        f"encryptor {encryptor:.4f} s, evaluator {evaluator:.4f} s"
    )
    case = f"rlwe {rows}x{columns}" + ("" if places == 12 else f" f={places}")
    return _row(case, turns, note) | {"formula_bytes": sum(plan.message_bytes)}


def _rlwe_turn(matrices: tuple[Matrix, Matrix], form: FixedPoint, exact: NDArray[np.int64] | None) -> _Turn:
    x, y = matrices
    plan = rlwe_product.Plan.choose(len(x), x.shape[1], y.shape[1], form, form)
    began = perf_counter()
    started = process_time()
    encryptor = rlwe_product.Encryptor(plan)
    encrypting = process_time() - started
    started = process_time()
    evaluator = rlwe_product.Evaluator(plan)
    evaluating = process_time() - started
    sent, start = 0, -plan.block_rows
    room = [np.empty(plan.block_rows * count, np.int32) for count in (x.shape[1], y.shape[1])]
    letter = np.empty(plan.parameters.words * plan.columns_a * plan.block_rows, "<i4")
    while start < plan.rows:
        length = min(plan.block_rows, plan.rows - start) if start >= 0 else plan.block_rows
        words = letter[: plan.parameters.words * plan.columns_a * length].reshape(-1, plan.columns_a, length)
        started = process_time()
        if start < 0:
            message = encryptor.begin(evaluator.nonce, words)
        else:
            message = encryptor.encrypt(_lines(form, x[start : start + length], room[0]), words)
        between = process_time()
        if start < 0:
            evaluator.begin(encryptor.nonce, message)
        else:
            evaluator.absorb(message, _lines(form, y[start : start + length], room[1]))
        ended = process_time()
        encrypting += between - started
        evaluating += ended - between
        sent += message.nbytes
        start += plan.block_rows
    started = process_time()
    reply, theirs = evaluator.reply(), evaluator.share()
    between = process_time()
    mine = encryptor.share(reply)
    encrypting += process_time() - between
    evaluating += between - started
    wall = perf_counter() - began
    total = raise_to_word(mine, plan.bits) + raise_to_word(theirs, plan.bits)
    _compare(lower_from_word(total, plan.bits), exact)
    return _Turn((encrypting, evaluating), encrypting + evaluating, sent + reply.h.nbytes + reply.v.nbytes, wall)


def _lines(form: FixedPoint, rows: Matrix, room: NDArray[np.int32]) -> NDArray[np.int32]:
    lines = room[: rows.size].reshape(rows.shape[::-1])
    form.fill(lines, rows)
    return lines


def _measure_ckks(ours: dict[str, Any], rows: int, columns: int) -> dict[str, Any]:
    """CKKS by `tenseal` on one block of rows, times the blocks; approximate, and without the evaluator's protection."""
    row: dict[str, Any] = {
        "case": f"ckks {rows}x{columns}",
        "ours": ours["ours"],
        "spread": ours["spread"],
        "repeats": 1,
        "unit": "s",
        "anchor": None,
        "anchor_name": "tenseal",
        "ratio": None,
        "better": "higher",
        "note": "tenseal is not installed: the `bench` extra brings it where it has wheels",
    }
    try:
        tenseal: Any = importlib.import_module("tenseal")
    except ImportError:
        return row
    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, poly_modulus_degree=8192, coeff_mod_bit_sizes=[60, 40, 60])
    context.global_scale = 2**40
    context.generate_galois_keys()
    slots = 4096
    x, y = _matrices(slots, columns)
    started = process_time()
    encrypted = [tenseal.ckks_vector(context, column) for column in x.T]
    for column in encrypted:
        for other in y.T:
            column.dot(other.tolist()).decrypt()
    anchor = (process_time() - started) * -(-rows // slots)
    note = f"one block of {slots} rows measured, times the blocks; results are approximate and not shared"
    return row | {"anchor": anchor, "ratio": anchor / ours["ours"], "note": note}


def _measure_stream(rows: int) -> dict[str, Any]:
    """Peak memory of a long stream, against one of a tenth of its length: it should not grow."""
    columns, long, short = 7, rows, rows // 10
    streams = []
    for length in (short, long):
        with tempfile.TemporaryDirectory() as folder:
            paths = [write(Path(folder), name, length, columns) for name in ("one", "two")]
            streams.append(stream_apart(paths, length, columns))
        _compare(streams[-1].product, streams[-1].exact)
    before, streamed = streams
    return {
        "case": f"memory dealer {rows}x{columns}",
        "ours": streamed.peak_mb,
        "spread": 0.0,
        "repeats": 1,
        "unit": "MB",
        "anchor": before.peak_mb,
        "anchor_name": f"{short} rows",
        "ratio": streamed.peak_mb / before.peak_mb,
        "better": "lower",
        "bytes": streamed.bytes,
        "formula_bytes": 16 * rows * columns,
        "note": f"streamed from Parquet; coordinator and both parties in one process, {streamed.seconds:.1f} s of CPU",
    }


def _clear(x: Matrix, y: Matrix) -> float:
    started = process_time()
    x.T @ y
    return process_time() - started


def _encoded(form: FixedPoint, x: Matrix, y: Matrix) -> NDArray[np.int64]:
    return form.columns(x, np.int64) @ form.columns(y, np.int64).T


def _compare(found: NDArray[np.int64], exact: NDArray[np.int64] | None) -> None:
    if exact is not None and not np.array_equal(found, exact):
        raise ArithmeticError(f"{int((found != exact).sum())} of {exact.size} entries of a secure product are wrong")


def _row(case: str, turns: list[tuple[float, _Turn]], note: str) -> dict[str, Any]:
    ours = statistics.median(turn.counted for _, turn in turns)
    anchor = statistics.median(clear for clear, _ in turns)
    return {
        "case": case,
        "ours": ours,
        "spread": statistics.stdev(turn.counted for _, turn in turns),
        "repeats": len(turns),
        "unit": "s",
        "anchor": anchor,
        "anchor_name": "numpy X.T @ Y",
        "ratio": ours / anchor,
        "better": "lower",
        "bytes": turns[0][1].bytes,
        "wall": statistics.median(turn.wall for _, turn in turns),
        "note": note,
    }
