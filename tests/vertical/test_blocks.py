"""Budgets from the bottom up: no block tells more than it asked for, and the study's ε is what they come to."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from comity.audit import epsilon_lower_bound
from comity.errors import StudyError
from comity.federation.coordinator.lifecycle import run
from comity.methods.vertical.budgets import Blocks
from comity.methods.vertical.centralised import add_noise
from comity.methods.vertical.design import PLACES
from comity.privacy.loss import Pure
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from tests.support.vertical import (
    build_regression,
    compute_single_entries,
    encode_parts,
    host_parties,
    make_consortium,
    make_people,
)

from .test_run import exact, opened

TWO = {"ash": 0.6, "birch": 0.9, "ash+birch": 0.5}
THREE = {"ash": 0.3, "birch": 0.2, "cedar": 0.4, "birch+ash": 0.1, "ash+cedar": 0.2, "birch+cedar": 0.15}


def moves(tried: Any) -> np.ndarray:
    """The released entries of each single record, before weights."""
    found: np.ndarray = compute_single_entries(tried) / tried.entries.weight
    return found


def furthest(found: np.ndarray) -> float:
    made: float = max(np.abs(found - one).sum(axis=1).max() for one in found)
    return made


@pytest.mark.parametrize(("parties", "given"), [(2, TWO), (3, THREE)])
@pytest.mark.parametrize("linear", [False, True])
def test_no_replacement_moves_a_block_further_than_its_sensitivity(parties: int, given: Any, linear: bool) -> None:
    tried = build_regression(parties, linear=linear, pure=True, block_epsilon=given, products="dealer")
    found, blocks = moves(tried), cast(Blocks, tried.blocks)
    for block, inside in blocks.entries_by_block(tried.entries).items():
        claimed = blocks.sensitivities(tried.entries)[block]
        assert 0.7 * claimed <= furthest(found[:, inside]) <= claimed, block


@pytest.mark.parametrize(("parties", "given"), [(2, TWO), (3, THREE)])
def test_every_block_and_the_whole_keep_their_losses_under_the_noise_that_is_drawn(parties: int, given: Any) -> None:
    """Brute force: the furthest move over the scale of the noise, of each block and of all entries."""
    tried = build_regression(parties, pure=True, block_epsilon=given, products="dealer")
    consortium = make_consortium(tried, Pure(5), colluders=0)
    release = tried.moments(consortium.loss)
    scale = release.scale(consortium)
    spread = scale.total * scale.grid
    weighted = moves(tried) * tried.entries.weight
    for block, inside in cast(Blocks, tried.blocks).entries_by_block(tried.entries).items():
        wished = cast(Blocks, tried.blocks).budgets[block]
        assert furthest(weighted[:, inside]) / spread <= wished, block
        # Rounding of weights costs little: the noise is not far above what was asked for.
        assert cast(Blocks, tried.blocks).losses(tried.entries)[block] >= 0.85 * wished
    total = float(cast(Pure, release.loss).epsilon)
    assert furthest(weighted) / spread <= total <= sum(given.values())


def test_positive_control_an_even_release_at_the_same_epsilon_breaks_the_smallest_wish() -> None:
    given = {"ash": 0.6, "birch": 0.9, "ash+birch": 0.1}
    even = build_regression(2, pure=True, products="dealer")
    consortium = make_consortium(even, Pure(1.6), colluders=0)
    scale = even.moments(consortium.loss).scale(consortium)
    tried = build_regression(2, pure=True, block_epsilon=given, products="dealer")
    inside = cast(Blocks, tried.blocks).entries_by_block(tried.entries)[("ash", "birch")]
    assert furthest(moves(tried)[:, inside]) / (scale.total * scale.grid) > 0.1


def test_the_smaller_of_the_sum_and_the_largest_rate_is_charged() -> None:
    """Budgets in proportion to the blocks' sensitivities are one even release, of which the sum is an overcount."""
    some = build_regression(3, pure=True, block_epsilon=dict.fromkeys(THREE, 0.1), products="dealer")
    spreads = cast(Blocks, some.blocks).sensitivities(some.entries)
    given = {"+".join(block): 0.5 * spread / max(spreads.values()) for block, spread in spreads.items()}
    even = build_regression(3, pure=True, block_epsilon=given, products="dealer")
    charged = float(cast(Blocks, even.blocks).loss(even.entries).epsilon)
    assert charged < 0.99 * sum(cast(Blocks, even.blocks).losses(even.entries).values())
    uneven = build_regression(3, pure=True, block_epsilon={**given, "ash": 20 * given["ash"]}, products="dealer")
    added = sum(cast(Blocks, uneven.blocks).losses(uneven.entries).values())
    assert float(cast(Blocks, uneven.blocks).loss(uneven.entries).epsilon) == pytest.approx(added, rel=1e-4)


@pytest.mark.parametrize("products", ["rlwe", "dealer"])
def test_a_run_opens_the_entries_of_one_place_and_charges_what_the_blocks_come_to(products: str) -> None:
    tried, frame = build_regression(2, pure=True, block_epsilon=TWO, products=products), make_people(300)
    values, _, _ = opened(tried, frame, make_consortium(tried, Pure(5)))
    np.testing.assert_allclose(values, exact(tried, frame), atol=255 * 4.0**-PLACES * 1.01)
    parties, hosts = host_parties(tried, encode_parts(tried, frame), make_consortium(tried, Pure(5)), SeededNoise(1))
    run(parties)
    spent = {host.store.ledger.summary()[0].spent.pure for host in hosts.values()}
    assert spent == {cast(Blocks, tried.blocks).loss(tried.entries).epsilon}


def test_blocks_have_the_noise_that_they_asked_for() -> None:
    tried, frame = build_regression(2, pure=True, block_epsilon=TWO, products="dealer"), make_people(200)
    consortium = make_consortium(tried, Pure(5), colluders=0)
    plain = exact(tried, frame)
    off = np.array([add_noise(tried, plain, consortium, SeededNoise(seed)) - plain for seed in range(80)])
    off /= tried.entries.weight
    spreads, spent = (
        cast(Blocks, tried.blocks).sensitivities(tried.entries),
        cast(Blocks, tried.blocks).losses(tried.entries),
    )
    for block, inside in cast(Blocks, tried.blocks).entries_by_block(tried.entries).items():
        assert np.abs(off[:, inside]).mean() == pytest.approx(spreads[block] / spent[block], rel=0.15)


def test_a_study_below_what_its_blocks_come_to_is_refused_with_the_figure() -> None:
    tried = build_regression(2, pure=True, block_epsilon=TWO)
    total = cast(Blocks, tried.blocks).loss(tried.entries).epsilon
    with pytest.raises(StudyError, match=f"comes to eps {total}"):
        tried.declare(make_consortium(tried, Pure(1)))
    said = tried.expectation(make_consortium(tried, Pure(total)))
    assert f"come to eps {total}" in said and "ash " in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ash": 1.0, "birch": 1.0}, r"nothing for ash\+birch"),
        ({**TWO, "elm": 1.0}, "'elm'"),
        ({**TWO, "birch+ash": 0.5}, "twice"),
        ({**TWO, "ash": 0.0}, "above 0"),
        ({**TWO, "ash": 1e-4}, "times the noise"),
    ],
)
def test_wrong_blocks_are_named(given: Any, said: str) -> None:
    with pytest.raises(StudyError, match=said):
        build_regression(2, pure=True, block_epsilon=given)


def test_blocks_are_for_laplace_noise_and_not_beside_wishes_from_the_top() -> None:
    with pytest.raises(StudyError, match="delta"):
        build_regression(2, block_epsilon=TWO)
    both = build_regression(2, pure=True, block_epsilon=TWO, party_epsilon={"ash": 1.0})
    with pytest.raises(StudyError, match="leave one"):
        both.declare(make_consortium(both, Pure(5)))


def ratios(tried: Any, consortium: Any, weight: Any, inside: Any) -> list[Any]:
    """Log-likelihood ratios of a block's opened entries under the two records that move it furthest."""
    release = tried.moments(consortium.loss)
    scale = release.scale(consortium)
    found = moves(tried)[:, inside] * weight[inside]
    apart = [np.abs(found - one).sum(axis=1) for one in found]
    first = int(np.argmax([one.max() for one in apart]))
    step = np.rint((found[int(apart[first].argmax())] - found[first]) / scale.grid)
    out = []
    for shift in (0.0, 1.0):
        shape = (40_000, len(step))
        drawn = release.noise.draw(SeededNoise(int(shift)), scale, shape, permit=simulated_permit("moments"))
        seen = drawn + shift * step
        out.append((np.abs(seen) - np.abs(seen - step)).sum(axis=1) / scale.total)
    return out


def test_audit_a_block_loses_no_more_than_its_wish_and_an_even_release_does() -> None:
    given = {"ash": 0.6, "birch": 0.9, "ash+birch": 0.1}
    tried = build_regression(2, pure=True, block_epsilon=given, products="dealer")
    consortium = make_consortium(tried, Pure(5), colluders=0)
    inside = cast(Blocks, tried.blocks).entries_by_block(tried.entries)[("ash", "birch")]
    assert epsilon_lower_bound(*ratios(tried, consortium, tried.entries.weight, inside), confidence=1 - 1e-6) <= 0.1
    whole = np.ones_like(inside)
    claimed = float(cast(Pure, tried.moments(consortium.loss).loss).epsilon)
    assert (
        0.1 < epsilon_lower_bound(*ratios(tried, consortium, tried.entries.weight, whole), confidence=0.999) <= claimed
    )
    even = build_regression(2, pure=True, products="dealer")
    told = ratios(even, make_consortium(even, Pure(1.6), colluders=0), even.entries.weight, inside)
    assert epsilon_lower_bound(*told, confidence=1 - 1e-6) > 0.1
