"""What public figures allow of opened tables: honest ones pass whatever the noise, made-up ones do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from comity.errors import Implausible
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.plausibility import require_plausible, require_ranges
from comity.methods.synthetic import SyntheticProtocol
from comity.methods.synthetic.counts import MAX_ROWS_FACTOR, table_ranges
from comity.privacy.loss import Approx, Loss, Pure
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise

from .consortia import CLASSES, build_synthetic, make_consortium, make_frame, make_schema

ROWS = 300


def many(parties: int, loss: Loss, dropouts: int = 0) -> Consortium:
    names = tuple(f"party-{place}" for place in range(parties))
    return replace(make_consortium(loss, parties=2), parties=names, dropouts=dropouts, colluders=1)


def opened(built: SyntheticProtocol, consortium: Consortium, counts: np.ndarray, parties: int, seed: int) -> np.ndarray:
    release = built.declare(consortium)["counts"]
    scale, source, noise = release.scale(consortium), SeededNoise(seed), release.noise
    assert noise is not None
    drawn = sum(
        noise.draw(source, scale, release.shape, permit=simulated_permit("counts", place), part=True)
        for place in range(parties)
    )
    return np.asarray(counts + drawn * scale.grid, np.float64)


def check(built: SyntheticProtocol, consortium: Consortium, found: np.ndarray, parties: int, **known: int) -> None:
    release = built.declare(consortium)["counts"]
    require_plausible(release, consortium, found, parties)
    require_ranges(release, consortium, parties, table_ranges(built.counting(consortium).layout, found, **known))


def counted(built: SyntheticProtocol, consortium: Consortium, rows: int = ROWS) -> np.ndarray:
    records = built.encoding.encode(make_frame(rows, 0, built.schema.target)).records
    return built.counting(consortium).layout.count(records.features)


@pytest.mark.parametrize("target", [CLASSES, None])
@pytest.mark.parametrize("loss", [Approx(0.01, 1e-6), Approx(30, 1e-6), Pure(0.01), Pure(20)])
def test_no_honest_tables_are_refused(loss: Loss, target: Any) -> None:
    """Of many owners and of two, with drop-outs, without records; with all pairs counted, or those with the target."""
    built = build_synthetic(schema=make_schema(target), rows=ROWS)
    for seed, (parties, dropouts, rows) in enumerate([(2, 0, ROWS), (20, 8, ROWS), (3, 0, 0), (5, 1, 1)]):
        consortium, left = many(parties, loss, dropouts), parties - dropouts
        counts = counted(built, consortium, rows)
        check(built, consortium, opened(built, consortium, counts, left, seed), left, about=ROWS)
        check(built, consortium, opened(built, consortium, counts, left, seed), left, exactly=rows)


@pytest.mark.long
def test_no_honest_tables_are_refused_in_thousands() -> None:
    built, generator = build_synthetic(schema=make_schema(), rows=ROWS), np.random.default_rng(1)
    for seed in range(600):
        parties = int(generator.integers(2, 51))
        epsilon, pure = float(10 ** generator.uniform(-2, 1.2)), bool(seed % 2)
        consortium = many(
            parties, Pure(epsilon) if pure else Approx(epsilon, 1e-6), int(generator.integers(0, parties // 2))
        )
        left = parties - consortium.dropouts
        check(built, consortium, opened(built, consortium, counted(built, consortium), left, seed), left, exactly=ROWS)


def lied(layout: Any, lie: str) -> Any:
    def of(counts: np.ndarray) -> np.ndarray:
        found = counts.copy()
        pair = next(block for block in layout.blocks if len(block.key) == 2)
        own = slice(pair.start, pair.stop)
        if lie == "one table counts a third more":
            found[own] *= 4 / 3
        elif lie == "one table has everybody in one cell":
            table = found[own].reshape(pair.shape)
            table[0], table[1:] = table.sum(axis=0), 0.0
        elif lie == "everything counts five times":
            found *= MAX_ROWS_FACTOR + 1
        return found

    return of


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ("one table counts a third more", "less that in another"),
        ("one table has everybody in one cell", "less that by another table"),
        ("everything counts five times", "the number of records in every table"),
    ],
)
def test_tables_that_no_records_have_are_refused(lie: str, said: str) -> None:
    built, consortium = build_synthetic(schema=make_schema(), rows=ROWS), many(3, Approx(30, 1e-6))
    layout, counts = built.counting(consortium).layout, counted(built, consortium)
    check(built, consortium, opened(built, consortium, counts, 3, 5), 3, about=ROWS)
    with pytest.raises(Implausible, match=said):
        check(built, consortium, opened(built, consortium, lied(layout, lie)(counts), 3, 5), 3, about=ROWS)


def test_where_the_number_of_rows_is_public_tables_have_that_total() -> None:
    built, consortium = build_synthetic(schema=make_schema(), rows=ROWS), many(3, Approx(30, 1e-6))
    counts = counted(built, consortium)
    with pytest.raises(Implausible, match="the number of records in every table should be exactly 400"):
        check(built, consortium, opened(built, consortium, counts, 3, 6), 3, exactly=ROWS + 100)
