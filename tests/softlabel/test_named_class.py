"""The most frequent class of each party as counts with Laplace noise: bound, audit, and how often it is named."""

from __future__ import annotations

from itertools import product
from math import sqrt

import numpy as np
import pytest

from comity.audit import epsilon_lower_bound
from comity.data import Records
from comity.federation.declare.consortium import Consortium
from comity.methods.softlabel.choice import choose_noise
from comity.methods.softlabel.method import SoftLabel, SoftLabelProtocol
from comity.methods.softlabel.record_sums import ClassSums, NamedClass
from comity.privacy.loss import Approx, Pure
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.mechanisms.spherical import Spherical
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from comity.study.local.stacks import NumberedParties
from comity.study.simulation.simulate import simulate
from experiments.papers.softlabel.release import total

CLASSES = tuple("abcdef")
ROWS = np.random.default_rng(0).normal(size=(60, 4))
SURE, COUNT = 1 - 1e-7, 40_000


def protocol() -> SoftLabelProtocol:
    return SoftLabel.over_rows(auxiliary=ROWS, classes=CLASSES, sizes=3)


def make_consortium(parties: int = 4, epsilon: float = 1.0) -> Consortium:
    return Consortium(parties=NumberedParties(parties), loss=Approx(epsilon, 1e-6))


def counted() -> NamedClass:
    return NamedClass.on(ROWS, 6, records_per_party=3, dimensions=0)  # type: ignore[return-value]


def test_every_party_of_few_records_names_within_the_sensitivity() -> None:
    """All labels of up to three records of six classes, pair by pair: 2 in L1 and √2 in L2, and both are reached."""
    named = counted()
    every = np.array(list(product(range(-1, 6), repeat=3)))
    sent = named.bound.enforce(named.contribution(np.zeros((343, 3, 4)), every, every >= 0), named.shape).reshape(
        343, -1
    )
    l1 = np.abs(sent[:, None] - sent).sum(axis=-1).max()
    l2 = np.linalg.norm(sent[:, None] - sent, axis=-1).max()
    assert l1 == pytest.approx(named.bound.l1) == pytest.approx(2.0)
    assert l2 == pytest.approx(named.bound.l2) == pytest.approx(sqrt(2))
    np.testing.assert_array_equal(sent[0], np.full(6, 1 / 6))


def test_it_makes_the_model_of_class_sums_without_directions() -> None:
    """The same votes, as counts or in contrasts, give the same weights."""
    labels = np.array([[0, 0, 1], [2, 2, 2], [0, 0, 4], [0, 3, 5]])
    records = np.zeros((4, 3, 4)), labels, np.ones((4, 3), bool)
    sums = ClassSums.on(ROWS, 6, records_per_party=3, dimensions=0)
    found = [one.model(one.contribution(*records).mean(axis=0), 0.1) for one in (counted(), sums)]
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    assert (found[0] @ np.r_[np.zeros(len(found[0].T) - 1), 1]).argmax() == 0


def test_the_quietest_noise_is_taken() -> None:
    loss = Approx(0.1, 1e-6)
    assert isinstance(choose_noise(loss, 6, l1=sqrt(2)), Laplace) and isinstance(
        choose_noise(Pure(1), 6, l1=sqrt(2)), Laplace
    )
    assert isinstance(choose_noise(loss, 2, l1=sqrt(2)), Spherical) and isinstance(choose_noise(loss, 6), Spherical)
    assert isinstance(choose_noise(Approx(0.1, 1e-2), 10_000, l1=100.0), Gaussian)
    release = protocol().declare(make_consortium(4, 0.1))["class-sums"]
    assert isinstance(release.noise, Laplace) and release.shape == (1, 6) and release.sensitivity == 2.0


def losses(shrink: float) -> float:
    """Measured on a party of one class, replaced by one of another, among three that hold nothing."""
    terms = make_consortium()
    release = protocol().declare(terms)["class-sums"]
    named, scale, source = counted(), release.scale(terms), SeededNoise(3)
    others = np.full((3, 1, 6), 1 / 6)
    centres, noisy = [], []
    for label in (0, 1):
        own = named.contribution(np.zeros((1, 3, 4)), np.full((1, 3), label), np.ones((1, 3), bool))
        centre = total(release, [others, own], terms).astype(float)
        shape = (COUNT, 1, 6)
        parts = sum(
            source.laplace_part(scale.total * shrink, terms.honest_parts, shape, permit=simulated_permit("class-sums"))
            for _ in range(terms.honest_parts)
        )
        centres.append(centre)
        noisy.append(centre + parts)
    away = [[np.abs(y - centre).sum(axis=(1, 2)) for centre in centres] for y in noisy]
    return epsilon_lower_bound(*(second - first for first, second in away), confidence=SURE)


def test_laplace_parts_hold_the_claim_and_a_missing_factor_is_caught() -> None:
    """Three honest parts. With one of the two entries that a replaced party moves left out, the audit fails."""
    assert 0.6 <= losses(1.0) <= 1.0
    assert losses(0.5) > 1.0


def test_a_run_opens_counts_and_nothing_else() -> None:
    parties = {f"p{place}": Records(ROWS[:3], np.full(3, place % 2 and 2)) for place in range(5)}
    outcome = simulate(protocol(), parties=parties, epsilon=0.5, delta=1e-6, seed=4)
    assert {"class-sums", "model"} >= set(outcome.released) and np.isfinite(outcome.released["model"]).all()
    assert protocol().title_in(make_consortium(5, 0.5)) == "softlabel (class-sums, Laplace)"
    assert "delta is not spent" in protocol().notes(make_consortium(5, 0.5))[0]
