"""Sensitivities against brute force: no pair of records moves the released entries further, and some nearly do."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from comity.methods.vertical.design import PLACES
from comity.methods.vertical.moments import l1_sensitivity, l2_sensitivity, party_share, squared_bound, to_units
from tests.support.vertical import build_regression, compute_single_entries, enumerate_rows


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("parties", [2, 3])
def test_no_replacement_moves_the_entries_further_in_l2(parties: int, linear: bool) -> None:
    tried = build_regression(parties, linear=linear)
    found = compute_single_entries(tried)
    squares = (found**2).sum(axis=1)
    furthest = sqrt((squares[:, None] + squares[None] - 2 * found @ found.T).max())
    claimed = l2_sensitivity(tried.design)
    assert furthest <= claimed
    assert furthest >= 0.8 * claimed


@pytest.mark.parametrize("linear", [False, True])
def test_no_replacement_moves_the_entries_further_in_l1(linear: bool) -> None:
    tried = build_regression(2, linear=linear, pure=True)
    found = compute_single_entries(tried)
    furthest = max(np.abs(found - one).sum(axis=1).max() for one in found)
    claimed = l1_sensitivity(tried.design)
    assert furthest <= claimed
    assert furthest >= 0.8 * claimed


def test_positive_control_a_norm_bound_without_the_label_is_broken_by_a_pair_of_records() -> None:
    tried = build_regression(2)
    found = compute_single_entries(tried)
    squares = (found**2).sum(axis=1)
    furthest = sqrt((squares[:, None] + squares[None] - 2 * found @ found.T).max())
    assert furthest > 5 * sqrt(2) * (squared_bound(tried.design) - tried.design.label.squared)


def test_the_loss_about_one_partys_columns_is_what_moving_them_alone_comes_to() -> None:
    """4 f (1 − f) of ρ: the furthest replacement within one party's columns, over the furthest of all."""
    tried = build_regression(3, linear=True)
    design = tried.design
    rows = to_units(enumerate_rows(design)) * 2.0**-PLACES
    found = np.array([tried.entries.exact(row[None]) for row in rows])
    squares = (found**2).sum(axis=1)
    apart = squares[:, None] + squares[None] - 2 * found @ found.T
    for party in tried.columns:
        others = np.ones(design.width, bool)
        others[design.places(party)] = False
        alike = (np.abs(rows[:, None][..., others] - rows[None][..., others]) < 1e-12).all(axis=2)
        furthest = apart[alike].max()
        assert furthest <= party_share(design, party) * l2_sensitivity(design) ** 2
        assert furthest >= 0.5 * party_share(design, party) * l2_sensitivity(design) ** 2


def test_columns_of_the_ledger_and_of_the_noise_agree() -> None:
    """What the release declares is what the mechanism scales by, with the carry of the ring product on top."""
    from tests.support.vertical import make_consortium

    for products in ("rlwe", "dealer"):
        tried = build_regression(2, products=products)
        release = tried.moments(make_consortium(tried).loss)
        carry = 2 * 7 * 4.0**-PLACES * sqrt(tried.entries.size) if products == "rlwe" else 0
        assert release.sensitivity == pytest.approx(l2_sensitivity(tried.design) + carry, rel=1e-12)
