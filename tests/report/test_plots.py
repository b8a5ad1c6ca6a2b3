"""Curves, matrices and pictures."""

from __future__ import annotations

import pytest

from comity.report.curve_plots import spread_apart


def test_names_of_levels_are_not_written_over_each_other() -> None:
    assert spread_apart([0.9, 0.401, 0.4], 0.05) == pytest.approx([0.9, 0.45, 0.4])
    assert spread_apart([0.2, 0.2, 0.2], 0.1) == pytest.approx([0.2, 0.3, 0.4])
    assert spread_apart([], 0.1) == [] and spread_apart([0.1, 0.5], 0.05) == [0.1, 0.5]
