"""Sums follow each other because each is asked for with values made from the one before: none could share a round.

A run is repeated with one opened sum altered. If the values that go out with the next sum are the same, the parties
could contribute to both at once, and a run over a wide area would be a round shorter. There is one such pair: the first
gradient of averaging is taken at zero, so it needs the whitening, and not the last second moment, which is opened
before it. One round of 29 is not worth asks that are open side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from comity.data import Numeric, Ordinal, Records, Schema
from comity.errors import ComityError
from comity.federation.coordinator.parties import Parties
from comity.methods.averaging import Averaging
from comity.protocol import RunOptions, Terms, simulate
from tests.synthetic.consortia import CLASSES, build_synthetic, encode_records

NAMES = ("ash", "birch", "cedar")
ROWS = 400
STAGES = ("one", "two", "three")
Made = tuple[Any, dict[str, Records], Terms]


def rows(seed: int) -> Records:
    chance = np.random.default_rng(seed)
    features = chance.normal(size=(ROWS, 4)) / 6
    return Records(features, (features[:, 0] > 0).astype(np.int64))


def averaged() -> Made:
    protocol = Averaging.over_rows(features=4, sizes=ROWS, solver="gradient", rounds=2)
    return protocol, {name: rows(seed) for seed, name in enumerate(NAMES)}, Terms()


def counted() -> Made:
    """Numbers with bounds alone: their edges are measured by a sum of their own."""
    columns = (Numeric("age", 18, 90), Numeric("income", 0.0, 100_000.0, missing="cell"), Ordinal("stage", STAGES))
    built = build_synthetic(schema=Schema(columns, CLASSES))
    records = {name: encode_records(built, ROWS, seed) for seed, name in enumerate(NAMES)}
    return built, records, Terms(neighbours="add-remove")


METHODS: dict[str, Callable[[], Made]] = {"averaging": averaged, "synthetic": counted}


def asked(make: Callable[[], Made], altered: int | None, patch: Any, by: float = 1.0) -> list[bytes]:
    """The values that go out with each sum, where the opened sum number `altered` is multiplied `by` a factor."""
    found: list[bytes] = []
    opened = Parties.sum

    def watched(self: Parties, step: Any, **values: Any) -> Any:
        found.append(b"".join(f"{name} ".encode() + np.asarray(value).tobytes() for name, value in values.items()))
        total = opened(self, step, **values)
        return replace(total, value=total.value * by) if altered == len(found) - 1 else total

    protocol, records, terms = make()
    with patch.context() as within:
        within.setattr(Parties, "sum", watched)
        # What follows an altered sum may be refused: the asks before that count.
        try:
            simulate(
                protocol,
                parties=records,
                epsilon=20.0,
                delta=1e-6,
                unit="record",
                seed=1,
                terms=terms,
                options=RunOptions(baselines=False, hosts=True),
            )
        except ComityError:
            assert altered is not None
    return found


@pytest.mark.parametrize("name", METHODS)
def test_what_each_sum_asks_for_is_made_from_the_one_before(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = asked(METHODS[name], None, monkeypatch)
    assert len(plain) > 1
    assert asked(METHODS[name], None, monkeypatch) == plain, "the same seed: nothing else moves"
    independent = []
    for number in range(len(plain) - 1):
        # A small change may be within a step that is clipped, and a large one beyond what the run accepts.
        others = [asked(METHODS[name], number, monkeypatch, by=by) for by in (1.01, 0.1, -1.0)]
        assert all(other[: number + 1] == plain[: number + 1] for other in others)
        if all(other[number + 1 :][:1] in ([], plain[number + 1 :][:1]) for other in others):
            independent.append(number)
    last_moment = [number for number, values in enumerate(plain) if values.startswith(b"whitening ")][-1:]
    assert independent == last_moment
