"""Lookups at masked places: the entry and nothing else, uniform to everybody who sees a part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.crypto import masked_lookup as lookup
from comity.crypto.products.inner_products import multiply_short, multiply_vector
from comity.entropy import derive
from comity.errors import Malformed
from comity.methods.vertical.curves import CURVES, TABLE_PLACES, Response

ROWS = 5000


def seeds(count: int, what: Any) -> list[bytes]:
    return [derive(b"test", what, number) for number in range(count)]


def looked_up(table: lookup.Table, places: Any, angles: Any, masks: Any, parties: int) -> tuple[Any, list[Any]]:
    """What all answers are together, and each of them."""
    own, rows = seeds(parties, "query"), len(places)
    asked = [lookup.draw_query(seed, rows, table) for seed in own[:-1]]
    asked.append(lookup.split_entries(places, table, own[:-1]))
    answers = [
        lookup.look_up(table, query, angles, masks, lookup.draw_zero_share(derive(b"common"), rows, me, parties))
        for me, query in enumerate(asked)
    ]
    return lookup.join_answers(answers), [*asked, *answers]


@pytest.mark.parametrize("parties", [2, 3, 5])
@pytest.mark.parametrize("entries", [64, 128, 4096])
def test_answers_are_the_masked_entry_at_the_place(parties: int, entries: int) -> None:
    generator = np.random.default_rng(parties)
    table = lookup.Table(generator.integers(-(1 << 40), 1 << 40, lookup.STEPS), entries)
    rows = ROWS if entries < 4096 else 300
    angles = generator.integers(0, lookup.STEPS, rows).astype(np.uint16)
    places = generator.integers(0, entries, rows)
    masks = lookup.draw_words(derive(b"masks"), rows)
    found, _ = looked_up(table, places, angles, masks, parties)
    exact = table.values[(places * table.step + angles) % lookup.STEPS].view(np.uint64)
    np.testing.assert_array_equal(found - masks, exact)


def test_no_share_of_a_question_or_an_answer_has_a_pattern() -> None:
    """The same place, angle and value in every row, without a mask of the value: each part is still spread evenly."""
    table = lookup.Table(np.zeros(lookup.STEPS, np.int64), 64)
    zero = np.zeros(ROWS, np.uint64)
    found, parts = looked_up(table, np.full(ROWS, 17), np.zeros(ROWS, np.uint16), zero, 3)
    assert not found.any()
    for part in parts:
        bits = np.unpackbits(np.ascontiguousarray(part).view(np.uint8).reshape(ROWS, 8), axis=1)
        assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.04
        assert len(np.unique(part.reshape(ROWS, -1), axis=0)) == ROWS
    # All questions together are one bit a row: why no coalition may have them all.
    together = parts[0] ^ parts[1] ^ parts[2]
    np.testing.assert_array_equal(np.unpackbits(together, axis=1, bitorder="little").nonzero()[1], 17)


def test_masked_angles_are_spread_over_the_circle_and_add_up() -> None:
    parts = [np.full(ROWS, 700, np.uint16), np.full(ROWS, 4000, np.uint16)]
    masks = [lookup.draw_angles(seed, ROWS) for seed in seeds(2, "angles")]
    shown = [lookup.subtract_angles(part, mask) for part, mask in zip(parts, masks)]
    for one in (*shown, lookup.add_angles(shown)):
        counts = np.bincount(one >> 8, minlength=16)
        assert one.max() < lookup.STEPS and counts.min() > ROWS / 16 * 0.7 and counts.max() < ROWS / 16 * 1.3
    total = lookup.add_angles([lookup.add_angles(shown), lookup.add_angles(masks)])
    np.testing.assert_array_equal(total, (700 + 4000) % lookup.STEPS)


@pytest.mark.parametrize("curve", CURVES)
def test_the_mean_of_what_is_looked_up_is_the_curve(curve: Response) -> None:
    """Over masks and the rounding to entries. In one place it is off by the interpolation."""
    table = curve.table
    parts = np.arange(table.step) / table.step
    values = np.ldexp(table.values.astype(np.float64), -TABLE_PLACES)
    # An angle lies `offset` above an entry, which is taken with the rest of the probability.
    found = [
        (1 - part) * np.roll(values, offset) + part * np.roll(values, offset - table.step)
        for offset, part in enumerate(parts)
    ]
    np.testing.assert_allclose(np.mean(found, axis=0), curve.values, atol=2.0**-TABLE_PLACES)
    assert np.abs(np.array(found) - curve.values).max() < 0.003
    assert np.abs(values).max() <= curve.largest


def test_places_are_the_two_around_an_angle_and_the_nearer_one_is_taken_more_often() -> None:
    table = lookup.Table(np.zeros(lookup.STEPS, np.int64), 64)
    for angle in (0, 16, 63, 4095, 4032):
        found = lookup.round_to_entries(np.full(ROWS, angle, np.uint16), table, derive(b"rounding", angle))
        below, up = divmod(angle, table.step)
        assert {*found.tolist()} <= {below, (below + 1) % 64}
        assert (found == (below + 1) % 64).mean() == pytest.approx(up / table.step, abs=0.03)


def test_vectors_are_multiplied_modulo_words() -> None:
    generator = np.random.default_rng(3)
    for lines in (0, 1, 3, 8):
        matrix = generator.integers(0, 2**64, (lines, 1100), dtype=np.uint64)
        vector = generator.integers(0, 2**64, 1100, dtype=np.uint64)
        exact = [sum(int(a) * int(b) for a, b in zip(line, vector)) % 2**64 for line in matrix]
        np.testing.assert_array_equal(multiply_vector(matrix, vector), np.array(exact, np.uint64))
        made = lookup.draw_words(derive(b"drawn"), lines * 1100).reshape(lines, 1100)
        np.testing.assert_array_equal(lookup.multiply_drawn(derive(b"drawn"), lines, vector), made @ vector)
        short = generator.integers(-(2**15), 2**15, (lines, 1100), dtype=np.int16)
        wide = short.astype(np.int64).view(np.uint64)
        np.testing.assert_array_equal(multiply_short(short, vector), multiply_vector(wide, vector))


def test_questions_and_tables_of_another_size_are_refused() -> None:
    table = lookup.Table(np.zeros(lookup.STEPS, np.int64), 64)
    with pytest.raises(Malformed):
        lookup.look_up(table, np.zeros((3, 7), np.uint8), np.zeros(3, np.uint16), *np.zeros((2, 3), np.uint64))
    for values, entries in ((np.zeros(9, np.int64), 64), (np.zeros(lookup.STEPS, np.int64), 96)):
        with pytest.raises(Malformed):
            lookup.Table(values, entries)
