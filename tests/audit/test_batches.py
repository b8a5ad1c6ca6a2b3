"""The audit's checks of batches and of stopped runs hold, and find the faults that they are for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.audit import batches
from comity.audit.batches import batch_checks, batch_steps, centring_control
from comity.audit.stopping import draw_until_refused, forgetting_control
from comity.methods.averaging import second_moments
from comity.methods.averaging.objectives import Objective


def test_no_record_changes_the_part_of_another() -> None:
    checks = list(batch_checks())
    assert len(checks) == len(list(batch_steps())) == 13 and all(check.held for check in checks)
    assert {check.name.partition(",")[0] for check in checks} == {"averaging", "summary", "synthetic", "vertical"}


def test_steps_that_centre_on_their_own_rows_are_caught() -> None:
    assert centring_control().caught


def test_a_map_that_depends_on_the_number_of_rows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = second_moments.Whitening.map_on_grid

    def scaled(self: second_moments.Whitening, rows: np.ndarray, out: Any = None) -> np.ndarray:
        return np.float32(1 - 2.0**-18 * len(rows)) * honest(self, rows, out)

    monkeypatch.setattr(second_moments.Whitening, "map_on_grid", scaled)
    # Gradients whiten on the way, unless rows may be outside of the ball.
    monkeypatch.setattr(Objective, "sum_whitened", lambda *_: None)
    failed = {check.name.partition(":")[0] for check in batch_checks() if not check.held}
    assert failed == {"averaging, whitened_moment", "averaging, gradient"}


def test_results_that_are_no_numbers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    step = next(step for step in batch_steps() if step.name == "averaging, second_moment")
    monkeypatch.setattr(batches.BatchSite, "total", lambda self, part, **_: part(self) * np.nan)
    assert batches.excess(step, 3) > 1


def test_a_coordinator_that_stops_draws_no_more_than_granted() -> None:
    drawn, granted, runs = draw_until_refused(lambda hosted: hosted)
    assert 0.5 * granted < drawn <= granted and runs > 10


def test_ledgers_that_forget_are_caught() -> None:
    assert forgetting_control().caught
