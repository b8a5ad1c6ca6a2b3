"""Neighbouring records: measured loss of what is opened within the claim, broken twins beyond it.

The pair is the one that moves the released entries furthest. A coalition's view at t = 1 is the opened sum less its own
part of the noise, and that is what is audited: with a part too few it is caught.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from comity.audit import epsilon_lower_bound, gdp_lower_bound
from comity.federation.coordinator.lifecycle import begin
from comity.federation.messages.codec import decode
from comity.privacy.loss import Approx, Pure
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from tests.support.vertical import (
    HELD,
    build_published,
    build_regression,
    compute_single_entries,
    encode_parts,
    host_parties,
    make_consortium,
    make_people,
    make_schema,
)

SURE = 1 - 1e-7
DRAWS = 60_000


def furthest(tried: Any) -> Any:
    """Exact entries of two neighbours: the furthest pair of single records, beside nothing else."""
    found = compute_single_entries(tried)
    norm = 1 if tried.pure else 2
    best, pair = -1.0, (0, 0)
    for one in range(len(found)):
        apart = np.linalg.norm(found - found[one], ord=norm, axis=1)
        if apart.max() > best:
            best, pair = float(apart.max()), (one, int(apart.argmax()))
    return found[pair[0]], found[pair[1]]


def scores(tried: Any, consortium: Any, parts_left: Any, shrink: float = 1.0, seed: int = 0) -> list[Any]:
    """Log-likelihood ratios of the sum with `parts_left` parts of the noise, under either neighbour."""
    release = tried.moments(consortium.loss)
    scale, noise = release.scale(consortium), release.noise
    first, second = (np.rint(value / scale.grid) for value in furthest(tried))
    step = second - first
    moving = np.flatnonzero(step)
    step = step[moving]
    out = []
    for place, shift in enumerate((0.0, 1.0)):
        source = SeededNoise(1000 * seed + place)
        drawn = np.zeros((DRAWS, len(moving)))
        for _ in range(parts_left):
            drawn += noise.draw(source, scale, (DRAWS, len(moving)), permit=simulated_permit("moments"), part=True)
        seen = shift * step + shrink * drawn
        if tried.pure:
            width = scale.total * shrink
            out.append((np.abs(seen) - np.abs(seen - step)).sum(axis=1) / width)
        else:
            out.append(seen @ step)
    return out


@pytest.mark.parametrize("colluders", [0, 1])
def test_gaussian_moments_lose_no_more_than_they_claim(colluders: int) -> None:
    tried = build_regression(2)
    consortium = make_consortium(tried, Approx(1, 1e-5), colluders=colluders)
    found = gdp_lower_bound(*scores(tried, consortium, 2 - colluders), delta=1e-5, confidence=SURE)
    assert 0.4 < found <= 1


def test_gaussian_moments_without_a_part_of_the_noise_are_caught() -> None:
    """Noise laid out for all three (t = 0), and two of them pool what they know: their own parts."""
    tried = build_regression(3)
    consortium = make_consortium(tried, Approx(1, 1e-5), colluders=0)
    assert gdp_lower_bound(*scores(tried, consortium, 1), delta=1e-5, confidence=SURE) > 1


@pytest.mark.parametrize("colluders", [0, 1])
def test_pure_moments_lose_no_more_than_they_claim(colluders: int) -> None:
    tried = build_regression(2, pure=True)
    consortium = make_consortium(tried, Pure(1), colluders=colluders)
    found = epsilon_lower_bound(*scores(tried, consortium, 2 - colluders), confidence=SURE)
    # Laplace noise on many coordinates hides more than its worst case says.
    assert 0.15 < found <= 1


def test_pure_moments_with_a_third_of_the_noise_are_caught() -> None:
    tried = build_regression(2, pure=True)
    consortium = make_consortium(tried, Pure(1), colluders=1)
    assert epsilon_lower_bound(*scores(tried, consortium, 1, shrink=1 / 3), confidence=SURE) > 1


def given_up(frame: Any, seed: Any) -> float:
    """What a party of the published method reads of the other's columns in one run, with all of its noise in place."""
    published = build_published(make_schema(), HELD[2], max_rows=1 << 10)
    consortium = make_consortium(published, Pure(1))
    parties, hosts = host_parties(published, encode_parts(published, frame), consortium, SeededNoise(seed))
    begin(parties)
    published.coordinate(parties)
    shares = [decode(hosts[one].store.state("run-1", f"in:sums:{other}") or b"") for one, other in PAIR]
    return float(sum(shares).view(np.int64).sum())


PAIR = (("ash", "birch"), ("birch", "ash"))


def test_noise_after_decryption_is_caught() -> None:
    """The published order, on two tables that differ in one record: the other party of a pair tells them apart."""
    runs = 16
    first: Any = make_people(40)
    second = first.copy()
    second.loc[0, ["age", "dose"]] = [100.0, 1.0] if first.loc[0, "age"] < 50 else [0.0, -1.0]
    views = [np.array([given_up(frame, seed) for seed in range(runs)]) for frame in (first, second)]
    middle = (np.median(views[0]) + np.median(views[1])) / 2
    above = np.median(views[0]) > middle
    often, seldom = (int(((view > middle) == above).sum()) for view in views)
    # Exact limits (Clopper and Pearson) of the two probabilities, each at 97.5 %: beyond the claim of 1.
    least = float(beta.ppf(0.025, often, runs - often + 1)) if often else 0.0
    most = float(beta.ppf(0.975, seldom + 1, runs - seldom)) if seldom < runs else 1.0
    assert least > 0 and np.log(least / most) > 1
    assert (
        not build_published(make_schema(), HELD[2], max_rows=1 << 20)
        .declare(make_consortium(build_regression(2, pure=True)))
        .private
    )
