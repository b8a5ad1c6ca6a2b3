"""What colluding owners, or a curator, see of two neighbours: measured losses within those that are debited, and broken
twins beyond them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from comity.audit.bound import mu_lower_bound
from comity.entropy import Stream
from comity.methods.summary import ratio
from comity.methods.summary.features import MOMENT_SENSITIVITY, FourierFeatures, sum_moments
from comity.methods.summary.ratio import Spectrum
from comity.privacy.loss import GDP, Approx
from tests.support.audits import SURE, claimed_mu, draw_views

from .consortia import COLUMNS, build_one_shot, make_consortium

COUNT = 6000


def estimate_loss(release: Any, consortium: Any, one: Any, other: Any, *, parts: Any = None) -> float:
    """μ that a reader can tell two contributions by, whose difference it knows."""
    apart = one - other
    seen = [
        draw_views(release, consortium, value, seed, parts=parts, count=COUNT) for seed, value in ((1, one), (2, other))
    ]
    return mu_lower_bound(*(view @ apart for view in seen), confidence=SURE)


def far_apart(features: Any) -> list[Any]:
    """Two records of a small search whose moments are nearly as far apart as any."""
    rows = 20 * Stream.public("audit").normal((400, COLUMNS))
    each = np.array([sum_moments(row[None, :], features) for row in rows])
    gram = each @ each.T
    square = np.diag(gram)[:, None] + np.diag(gram)[None, :] - 2 * gram
    return [each[place] for place in np.unravel_index(int(square.argmax()), square.shape)]


def test_moments_lose_no_more_than_is_debited_for_them() -> None:
    built, consortium = build_one_shot(dimensions=6), make_consortium(Approx(6.0, 1e-5))
    release = built.declare(consortium).accept(consortium)["moments"]
    one, other = far_apart(FourierFeatures.draw(COLUMNS, 6, 3.0, Stream.public("audit features")))
    assert np.linalg.norm(one - other) > 0.95 * MOMENT_SENSITIVITY
    honest, claimed = release.parts(consortium), claimed_mu(release)
    assert honest == 2
    assert 0.7 * claimed < estimate_loss(release, consortium, one, other, parts=honest) <= claimed
    # Controls: features of twice the length, and noise that counts on the reader's own part.
    assert estimate_loss(release, consortium, 2 * one, 2 * other, parts=honest) > claimed
    assert estimate_loss(release, consortium, one, other, parts=1) > claimed


def test_the_consumers_wish_loses_no_more_than_its_own_ledger_is_charged() -> None:
    built, consortium = build_one_shot(dimensions=6), make_consortium(Approx(12.0, 1e-5))
    release = built.declare(consortium).accept(consortium)["wish"]
    seen = Spectrum(np.zeros(6), np.eye(6)[:, :2], np.array([0.5, 0.1]))
    phi = np.array([[1.0, 0, 0, 0, 0, 0], [-1.0, 0, 0, 0, 0, 0]])
    plain = seen.whitened(phi) * seen.variances**0.25 / seen.radius
    one, other = np.zeros((2, *release.shape))
    one[:2], other[:2] = seen.in_ball(phi)
    claimed = claimed_mu(release)
    assert 0.7 * claimed < estimate_loss(release, consortium, one, other, parts=1) <= claimed
    # Control: rows that were not brought into the ball.
    one[:2], other[:2] = 1.3 * plain / np.linalg.norm(plain, axis=1, keepdims=True)
    assert estimate_loss(release, consortium, one, other, parts=1) > claimed


def test_an_owners_mass_loses_no_more_than_is_debited_for_it() -> None:
    built, consortium = build_one_shot(dimensions=6), make_consortium(Approx(80.0, 1e-5))
    release = built.declare(consortium).accept(consortium)["mass"]
    claimed = claimed_mu(release)
    one, other = np.array([ratio.MAX_RATIO**2]), np.array([0.0])
    assert 0.6 * claimed < estimate_loss(release, consortium, one, other, parts=1) <= claimed
    # Control: a ratio without its upper end.
    assert estimate_loss(release, consortium, 4 * one, other, parts=1) > claimed


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_an_owners_two_releases_cost_no_more_than_the_study_and_the_consumers_one_no_less(epsilon: float) -> None:
    built, consortium = build_one_shot(), make_consortium(Approx(epsilon, 1e-5))
    declared = built.declare(consortium).accept(consortium)
    owner = [float(cast(GDP, declared[name].loss).square) for name in ("moments", "mass")]
    assert sum(owner) <= float(cast(GDP, declared["wish"].loss).square) <= sum(owner) * (1 + 1e-9)
