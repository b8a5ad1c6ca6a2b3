"""What a coordinator with one party sees of two neighbours: measured loss within the claim, broken twins beyond it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.audit import epsilon_lower_bound
from comity.audit.bound import mu_lower_bound
from comity.data import Numeric, Schema
from comity.entropy import Stream
from comity.methods.synthetic.consistency import make_consistent
from comity.methods.synthetic.counts import fit_counting
from comity.privacy.loss import Approx, Pure
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from comity.privacy.sampling.lattice_noise import count_parts
from tests.support.audits import SURE, claimed_mu, draw_views

from .consortia import CLASSES, build_synthetic, make_consortium

COUNT = 20_000
SMALL = Schema((Numeric("x", 0.0, 1.0, bins=2),), CLASSES)


def pair(built: Any, consortium: Any, neighbours: Any) -> Any:
    """Counts of records with and without the last one, or with it replaced."""
    layout = built.counting(consortium).layout
    others = np.array([[0, 0], [1, 1]])
    with_it = layout.count(np.vstack([others, [0, 0]]))
    return with_it, layout.count(others if neighbours == "add-remove" else np.vstack([others, [1, 1]]))


def views(release: Any, consortium: Any, values: Any, seed: Any, *, parts: Any = None, count: Any = COUNT) -> Any:
    """What is left of one contribution under the honest parts of its noise."""
    if not isinstance(consortium.loss, Pure):
        return draw_views(release, consortium, values, seed, parts=parts, count=count)
    scale, source, shape = release.scale(consortium), SeededNoise(seed), (count, *release.shape)
    total = values + np.zeros(shape)
    for _ in range(consortium.honest_parts if parts is None else parts):
        own = count_parts(scale.total, scale.part)
        total += source.laplace_part(scale.total, own, shape, permit=simulated_permit(release.name)) * scale.grid
    return total


def estimate_loss(
    built: Any, consortium: Any, *, parts: Any = None, stretched: float = 1.0, one: Any = None, other: Any = None
) -> float:
    release = built.declare(consortium)["counts"]
    first, second = (one, other) if one is not None else pair(built, consortium, consortium.neighbours.value)
    apart = stretched * (first - second)
    seen = [views(release, consortium, second + side * apart, 5 + side, parts=parts) for side in (1, 0)]
    if isinstance(consortium.loss, Pure):
        scores = [np.abs(view - second).sum(1) - np.abs(view - second - apart).sum(1) for view in seen]
        return epsilon_lower_bound(*scores, confidence=SURE)
    return mu_lower_bound(*(view @ apart for view in seen), confidence=SURE)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_counts_lose_no_more_than_is_debited_for_them(neighbours: str) -> None:
    built, consortium = build_synthetic(schema=SMALL), make_consortium(Approx(6.0, 1e-6), neighbours=neighbours)
    claimed = claimed_mu(built.declare(consortium)["counts"])
    assert 0.7 * claimed < estimate_loss(built, consortium) <= claimed
    # Controls: a record that is counted twice, and noise that counts on the reader's own part.
    assert estimate_loss(built, consortium, stretched=2.0) > claimed
    assert estimate_loss(built, consortium, parts=1) > claimed


def test_pure_counts_keep_their_epsilon() -> None:
    built, consortium = build_synthetic(schema=SMALL, model="mixture"), make_consortium(Pure(2.0))
    assert 0.5 * 2.0 < estimate_loss(built, consortium) <= 2.0
    assert estimate_loss(built, consortium, stretched=2.5) > 2.0


def test_a_replacement_under_noise_for_a_removal_is_caught() -> None:
    built = build_synthetic(schema=SMALL)
    consortium, replaced = make_consortium(Approx(6.0, 1e-6)), make_consortium(Approx(6.0, 1e-6), neighbours="replace")
    one, other = pair(built, replaced, "replace")
    assert estimate_loss(built, consortium, one=one, other=other) > claimed_mu(built.declare(consortium)["counts"])


def support(low_to_high: Any, values: Any) -> Any:
    """The values that rows made of counts can have at all, where bounds of a column are taken from its records."""
    low, high = low_to_high
    own = Schema((Numeric("x", low, high, bins=2),), CLASSES)
    cells = fit_counting(own).cells
    every = np.array([[k, 0] for k in range(2)] * 50)
    return cells.draw(every, Stream.public("support"))["x"].max(), values


def test_bounds_from_the_records_give_the_record_away_and_the_schema_does_not() -> None:
    """The support test: with bounds measured on the data one outlier shows in what rows can be, whatever the noise."""
    without, with_it = np.array([0.1, 0.2, 0.3]), np.array([0.1, 0.2, 0.3, 0.9])
    by_data = [support((float(x.min()), float(x.max())), x)[0] for x in (without, with_it)]
    assert by_data[0] <= 0.3 < by_data[1]
    by_schema = [support((0.0, 1.0), x)[0] for x in (without, with_it)]
    assert by_schema[0] == by_schema[1]


def test_marginals_after_agreement_lose_no_more() -> None:
    """What is made of the counts is post-processing: the total that rows are counted by is no clearer than they are."""
    built, consortium = build_synthetic(schema=SMALL), make_consortium(Approx(6.0, 1e-6))
    release, layout = built.declare(consortium)["counts"], built.counting(consortium).layout
    first, second = pair(built, consortium, "add-remove")
    claimed = claimed_mu(release)

    def totals(values: Any, seed: Any) -> np.ndarray:
        deviation = layout.deviations(release.opened_deviation(consortium, consortium.size))
        seen = views(release, consortium, values, seed, count=3000)
        return np.array([make_consistent(layout, layout.tables(view), deviation).pairs[0, 1][0, 0] for view in seen])

    assert mu_lower_bound(totals(first, 1), totals(second, 2), confidence=SURE) <= claimed
