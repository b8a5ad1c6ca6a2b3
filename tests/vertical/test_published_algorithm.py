"""Algorithm 1 of Xu, Yuan and Wu (2019), line by line: a run beside a transcription of the printed steps.

The transcription is numpy alone. It takes the noise that each party drew in the run, in the order of the coefficients
that the party sends, so that every number on the wire is compared and not only its distribution.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.data import Bounded, Classes, Numeric, Schema
from comity.errors import StudyError
from comity.federation.coordinator.lifecycle import run
from comity.federation.messages.codec import decode
from comity.federation.plan import plan
from comity.methods.vertical import Vertical
from comity.methods.vertical.budgets import read_budgets
from comity.methods.vertical.published.polynomial import minimise_polynomial
from comity.methods.vertical.published.protocol import PublishedVertical
from comity.methods.vertical.published.sensitivities import (
    BlockSensitivities,
    corollary_1,
    printed_sensitivity,
    true_sensitivity,
)
from comity.privacy.loss import Pure
from comity.privacy.randomness import SeededNoise
from tests.support.arrays import find_arrays
from tests.support.vertical import build_published, encode_parts, host_parties, make_consortium
from tests.vertical.test_published import polynomials

PARTIES = {"ash": ("y", "a", "b"), "birch": ("c",), "cedar": ("d", "e")}
FEATURES = {"ash": 2, "birch": 1, "cedar": 2}
ROWS = 60
Floats = np.ndarray


def published(*, linear: bool, **options: Any) -> PublishedVertical:
    target = Bounded("y", -1, 1) if linear else Classes("y", ("0", "1"))
    schema = Schema(tuple(Numeric(name, -1, 1) for name in "abcde"), target)
    return build_published(schema, PARTIES, max_rows=1 << 10, **options)


def people(*, linear: bool) -> tuple[Any, Floats, Floats]:
    """Records on the grid of the products, so that both sides multiply the same numbers."""
    generator = np.random.default_rng(2)
    x = generator.integers(-(2**14), 2**14 + 1, (ROWS, 5)) / 2**14
    y = generator.integers(-(2**14), 2**14 + 1, ROWS) / 2**14 if linear else (x[:, 0] + x[:, 3] > 0).astype(float)
    frame = pd.DataFrame(dict(zip("abcde", x.T)))
    frame["y"] = y if linear else np.where(y > 0, "1", "0")
    return frame, x, y


@dataclass
class Recorded:
    """A source of noise that writes down what was drawn, with its scale."""

    inner: SeededNoise
    drawn: list[tuple[float, Floats]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def discrete_laplace(self, scale: float, shape: Any, *, permit: Any) -> Floats:
        found = self.inner.discrete_laplace(scale, shape, permit=permit)
        self.drawn.append((scale, found))
        return found


def run_recorded(tried: PublishedVertical, frame: Any, loss: Pure) -> tuple[dict[str, Floats], list[Any], Floats, Any]:
    """What each party sent in `coefficients`, what was drawn, the released model, and the scale of the release."""
    source = Recorded(SeededNoise(11))
    parties, _ = host_parties(tried, encode_parts(tried, frame), make_consortium(tried, loss), source)
    model = run(parties)["model"]
    sent: dict[str, Floats] = {}
    length = max(tried.coefficient_counts.values())
    for _, exchanges in parties.journal.traffic(parties.study, parties.run):
        for party, exchange in exchanges.items():
            for array in find_arrays(decode(exchange.reply or b"").get("ok")):
                if array.shape == (length,) and array.dtype == np.int64:
                    sent[party] = array
    return sent, source.drawn, model, tried.declare(parties.consortium)["coefficients"].scale(parties.consortium)


def algorithm_1(x: Floats, y: Floats, *, linear: bool, draws: dict[str, list[float]]) -> tuple[dict[str, Any], Floats]:
    """The paper's Algorithm 1. `draws` has Lap(Δ_f/ε) for each coefficient, by party, in the order of the loops."""
    columns = {"ash": (0, 1), "birch": (2,), "cedar": (3, 4)}
    label_at = "ash"
    d = x.shape[1]
    # 1: set f_D(w) by Equation 5: wᵀMw + aᵀw + c, its coefficients by Equation 2 or 4.
    second = 1.0 if linear else 1 / 8
    # 2: allocate λ^k to party k, and λ^{k*} to the owner of the feature that comes first.
    sent: dict[str, Any] = {}
    m, a = np.zeros((d, d)), np.zeros(d)
    # 3: Δ_f is in the scale of `draws`.
    for party, own in columns.items():  # 4
        noise = iter(draws[party])
        sent[party] = []
        for one in own:
            for other in range(d):
                # 5-6 where both features are the party's own, 10-11 where the other is another party's.
                coefficient = second * sum(x[i, one] * x[i, other] for i in range(len(x)))
                noisy = coefficient + next(noise)  # 7, 12
                sent[party].append(noisy)  # 8, 13
                m[one, other] = noisy
        for one in own:
            # 5-6 at the label's holder, 10-11 elsewhere: the label comes from party 1.
            weight = -2 * y if linear else 0.5 - y
            noisy = sum(weight[i] * x[i, one] for i in range(len(x))) + next(noise)  # 7, 12
            sent[party].append(noisy)  # 8, 13
            a[one] = noisy
        if linear and party == label_at:
            sent[party].append(sum(value**2 for value in y) + next(noise))  # 6-8 of λ_φ0
    # 15: end for
    # 16-17: argmin of wᵀMw + aᵀw: (M + Mᵀ)w = −a.
    return sent, np.linalg.solve(m + m.T, -a)


@pytest.mark.parametrize("linear", [False, True])
def test_every_line_of_algorithm_1_is_what_a_run_does(linear: bool) -> None:
    tried = published(linear=linear)
    frame, x, y = people(linear=linear)
    sent, drawn, model, scale = run_recorded(tried, frame, Pure(2))
    # Line 3, and the scale of lines 7 and 12: Δ_f/ε and no repair.
    d = 5
    delta = 2 * (1 + 2 * d + d * d) if linear else d * d / 4 + d
    assert [found for found, _ in drawn] == [scale.total] * 3
    assert scale.total * scale.grid == pytest.approx(delta / 2, rel=1e-6)
    # One draw by each party, in the parties' order.
    draws = {party: (noise * scale.grid).tolist() for party, (_, noise) in zip(PARTIES, drawn)}
    said, weights = algorithm_1(x, y, linear=linear, draws=draws)
    assert sum(map(len, said.values())) == d + d * d + linear
    for party, values in said.items():
        np.testing.assert_allclose(sent[party][: len(values)] * scale.grid, values, atol=2 * scale.grid)
        # What fills the vector up holds noise alone.
        np.testing.assert_array_equal(
            sent[party][len(values) :], np.array(drawn[list(PARTIES).index(party)][1])[len(values) :]
        )
    np.testing.assert_allclose(model, weights, rtol=1e-4)


def test_line_16_takes_a_saddle_where_there_is_no_minimum() -> None:
    """At a small ε the printed argmin does not exist. As printed, the slope is zero; each repair gives another w."""
    generator = np.random.default_rng(1)
    noisy, linear = generator.normal(size=(4, 4)), generator.normal(size=4)
    polynomial = np.concatenate([noisy.reshape(-1), linear])
    values = np.linalg.eigvalsh((noisy + noisy.T) / 2)
    assert values[0] < 0 < values[-1]
    printed = minimise_polynomial(polynomial, 4, 0.1)
    np.testing.assert_allclose((noisy + noisy.T) @ printed + linear, 0, atol=1e-9)
    found = {repair: minimise_polynomial(polynomial, 4, 0.1, repair) for repair in ("zhang", "floor")}
    assert all(np.linalg.norm(found[one] - printed) > 1e-3 for one in ("zhang", "floor"))


def test_zhangs_repair_is_a_ridge_of_four_deviations_and_spectral_trimming() -> None:
    """Zhang et al. (2012), sections 6.1 and 6.2, transcribed: M + λI, then the minimum in the span of the eigenvectors
    whose eigenvalue is above zero."""
    generator = np.random.default_rng(4)
    deviation, trimmed = 0.2, 0
    for _ in range(20):
        noisy, linear = generator.normal(size=(6, 6)), generator.normal(size=6)
        matrix = (noisy + noisy.T) / 2 + 4 * deviation * np.eye(6)
        values, vectors = np.linalg.eigh(matrix)
        kept = vectors[:, values > 0]
        trimmed += 6 - kept.shape[1]
        # min over v of vᵀ(QᵀMQ)v + (Qᵀa)ᵀv, and w = Qv.
        v = np.linalg.solve(2 * kept.T @ matrix @ kept, -kept.T @ linear)
        polynomial = np.concatenate([noisy.reshape(-1), linear])
        np.testing.assert_allclose(minimise_polynomial(polynomial, 6, deviation, "zhang"), kept @ v, atol=1e-9)
    assert trimmed
    # Nothing is left: no direction has a minimum, and the model is zero.
    assert not minimise_polynomial(np.concatenate([-np.eye(2).reshape(-1), np.ones(2)]), 2, 0.1, "zhang").any()


# What the options do.


def test_the_published_variant_has_every_repair_off() -> None:
    schema = Schema((Numeric("a", -1, 1), Numeric("b", -1, 1)), Bounded("y", -1, 1))
    method = Vertical(schema, columns={"ash": ("a", "y"), "birch": ("b",)}, variant="published")
    assert (method.intercept, method.sensitivity, method.repair, method.block_epsilon) == (False, "paper", "none", {})
    constants = method.constants
    assert constants["sensitivity"].is_papers and not constants["secure_product"].is_papers
    assert all(one.source and one.meaning for one in constants.values())
    changed = Vertical(schema, columns={"ash": ("a", "y"), "birch": ("b",)}, variant="published", repair="zhang")
    assert changed.constants["repair"].in_use == "zhang" and changed.constants["repair"].value == "none"
    assert Vertical(schema, columns={"ash": ("a", "y"), "birch": ("b",)}).intercept


@pytest.mark.parametrize("linear", [False, True])
def test_the_tight_sensitivity_halves_the_noise_and_the_plan_says_what_is_left(linear: bool) -> None:
    printed, tight = published(linear=linear), published(linear=linear, sensitivity="tight")
    consortium = make_consortium(printed, Pure(1))
    scales = [one.declare(consortium)["coefficients"].scale(consortium) for one in (printed, tight)]
    ratio = float(true_sensitivity(5, 5, logistic=not linear, label=True) / printed_sensitivity(5, logistic=not linear))
    assert scales[1].total / scales[0].total == pytest.approx(ratio, rel=1e-6) and ratio < 0.55
    losses = {loss.about: loss for loss in tight.true_losses(consortium)[:-1]}
    assert losses["a record"].true == "eps 1.00" == losses["a record"].claimed
    halved = {loss.about: loss for loss in printed.true_losses(consortium)[:-1]}
    assert halved["a record"].true == ("eps 0.50" if linear else "eps 0.5445")
    assert f"{scales[1].total * scales[1].grid * 2**0.5:.3g}" in tight.expectation(consortium)


# From the bottom up.

BLOCKS = {"ash": 0.4, "birch": 0.2, "cedar": 0.1, "ash+birch": 0.3, "cedar+ash": 0.5, "birch+cedar": 0.25}


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("sensitivity", ["paper", "tight"])
def test_each_block_has_noise_for_its_own_budget(linear: bool, sensitivity: str) -> None:
    """Section Extension to the Bottom-up Case: what the server divides by its factor has Lap(Δ_j/ε_j) on block j."""
    tried = published(linear=linear, block_epsilon=BLOCKS, sensitivity=sensitivity)
    frame, x, y = people(linear=linear)
    sent, drawn, model, scale = run_recorded(tried, frame, Pure(2))
    budgets = read_budgets(tuple(PARTIES), BLOCKS)
    sums = BlockSensitivities(FEATURES, "ash", not linear)
    found = sums.true if sensitivity == "tight" else sums.printed
    draws: dict[str, list[float]] = {}
    for place, party in enumerate(PARTIES):
        factors, noise = tried._factors(party), drawn[place][1] * scale.grid
        owners = [one for one, count in FEATURES.items() for _ in range(count)]
        blocks = [tuple(sorted({party, other})) for _ in range(FEATURES[party]) for other in owners]
        blocks += [tuple(sorted({party, "ash"}))] * FEATURES[party] + [("ash",)] * (linear and party == "ash")
        for at, block in enumerate(blocks):
            wanted = float(found(block)) / budgets[block]
            assert scale.total * scale.grid / factors[at] == pytest.approx(wanted, rel=1e-5), (party, at, block)
        draws[party] = (noise / factors)[: len(blocks)].tolist()
    said, weights = algorithm_1(x, y, linear=linear, draws=draws)
    for party, values in said.items():
        noisy = sent[party] * scale.grid / tried._factors(party)
        np.testing.assert_allclose(noisy[: len(values)], values, atol=1e-4)
    np.testing.assert_allclose(model, weights, rtol=1e-3)


def blocks_of_coefficients(*, linear: bool) -> list[tuple[str, ...]]:
    """The block of each of a record's `polynomials`."""
    owner = [party for party, count in FEATURES.items() for _ in range(count)]
    keys = [tuple(sorted({owner[a], owner[b]})) for a in range(5) for b in range(5)]
    return keys + [tuple(sorted({owner[a], "ash"})) for a in range(5)] + ([("ash",)] if linear else [])


def furthest_in(block: tuple[str, ...], *, linear: bool) -> float:
    """The largest distance within a block's coefficients, over records at the corners and at zero, by search."""
    places = {"ash": (0, 1), "birch": (2,), "cedar": (3, 4)}
    steps = (-1.0, 0.0, 1.0)
    moving = [at for party in block for at in places[party]]
    choices = [steps if at in moving else (0.0,) for at in range(5)]
    labels: tuple[float, ...] = (0.0,) if linear else (0.5,)
    if "ash" in block:
        labels = steps if linear else (0.0, 1.0)
    rows = np.array(list(product(*choices, labels)))
    made = polynomials(rows, logistic=not linear)
    inside = made[:, [at for at, key in enumerate(blocks_of_coefficients(linear=linear)) if key == block]]
    return max(float(np.abs(inside - one).sum(axis=1).max()) for one in inside)


@pytest.mark.parametrize("linear", [False, True])
def test_block_sensitivities_are_those_of_a_search_and_the_printed_ones_add_up(linear: bool) -> None:
    sums = BlockSensitivities(FEATURES, "ash", not linear)
    budgets = read_budgets(tuple(PARTIES), BLOCKS)
    for block in budgets:
        assert furthest_in(block, linear=linear) == pytest.approx(float(sums.true(block)))
        assert sums.true(block) <= sums.printed(block)
    assert sum(map(sums.printed, budgets)) == printed_sensitivity(5, logistic=not linear)


def test_corollary_1_overcounts_by_the_number_of_blocks() -> None:
    """The counterexample: budgets that give every coefficient the noise of the top-down case at ε = 1. There a record
    loses at most 1, by Theorem 1; Corollary 1 says 6 for the six blocks of three parties."""
    sums = BlockSensitivities(FEATURES, "ash", False)
    budgets = read_budgets(tuple(PARTIES), BLOCKS)
    printed = {block: sums.printed(block) for block in budgets}
    whole = sum(printed.values())
    even = {block: spread / whole for block, spread in printed.items()}
    assert sum(even.values()) == 1 and corollary_1(even, printed) == 6
    # Never below the sum of the budgets, so that what it promises holds, and is less than what could be promised.
    given = {block: Fraction(str(epsilon)) for block, epsilon in budgets.items()}
    assert corollary_1(given, printed) > sum(given.values())


def test_the_plan_of_the_bottom_up_case_has_the_papers_total_and_the_true_one() -> None:
    tried = published(linear=True, block_epsilon=BLOCKS)
    consortium = make_consortium(tried, Pure(2))
    planned = plan("s", tried, consortium)
    losses = {(loss.about, loss.to): loss for loss in planned.true_losses}
    sees = "everyone who sees the coefficients or the model"
    record = losses["a record", sees]
    sums = BlockSensitivities(FEATURES, "ash", False)
    budgets = {block: Fraction(str(one)) for block, one in read_budgets(tuple(PARTIES), BLOCKS).items()}
    claimed = corollary_1(budgets, {block: sums.printed(block) for block in budgets})
    assert record.claimed == str(Pure(1).scaled(claimed)) and float(claimed) > 5 * 1.75
    # Own blocks lose half of their budget, pairs all of it: .35 + 1.05.
    assert record.true == "at most eps 1.40"
    assert losses["the columns of birch", sees].claimed == "eps 0.75"
    assert losses["the columns of birch", sees].true == "at most eps 0.65"
    assert losses["a record", "each other party"].true.startswith("infinite")
    # Ledgers debit the sum of the budgets.
    assert str(tried.declare(consortium)["coefficients"].loss) == "eps 1.75"
    with pytest.raises(StudyError, match=r"comes to eps 1\.75 about whole records, found privacy\.epsilon = 1"):
        tried.declare(make_consortium(tried, Pure(1)))


def test_no_pair_of_records_loses_more_than_the_plan_of_the_bottom_up_case_says() -> None:
    """All pairs of records at the corners and at zero: their distance in each block over the scale of its noise."""
    for linear in (False, True):
        tried = published(linear=linear, block_epsilon=BLOCKS)
        budgets, sums = read_budgets(tuple(PARTIES), BLOCKS), BlockSensitivities(FEATURES, "ash", not linear)
        steps = (-1.0, 0.0, 1.0)
        made = polynomials(np.array(list(product(*[steps] * 5, steps if linear else (0.0, 1.0)))), logistic=not linear)
        rates = np.array([budgets[key] / float(sums.printed(key)) for key in blocks_of_coefficients(linear=linear)])
        furthest = max(float((np.abs(made - one) @ rates).max()) for one in made)
        (said,) = [loss.true for loss in tried.true_losses(make_consortium(tried, Pure(2)))[:1]]
        planned = float(said.removeprefix("at most eps "))
        # No record moves all pairs as far as each pair can move: the plan says "at most".
        assert 0.6 * planned < furthest <= planned
        # The broken twin: the same figure with the noise of one coefficient a hundred times smaller.
        rates[2] *= 100
        assert max(float((np.abs(made - one) @ rates).max()) for one in made) > planned


def test_products_across_parties_grow_with_the_square_of_the_features() -> None:
    """The paper says O(dJK) in one place and at most d² in another; twice the features are four times the products."""
    found = []
    for width in (8, 16, 32):
        names = [f"x{at}" for at in range(width)]
        schema = Schema(tuple(Numeric(name, -1, 1) for name in names), Bounded("y", -1, 1))
        columns = {"ash": ("y", *names[: width // 2]), "birch": tuple(names[width // 2 :])}
        found.append(build_published(schema, columns, max_rows=64).inner_products)
    assert found == [20, 72, 272] and found[2] / found[1] > 3.7


def test_a_bottom_up_study_needs_every_block() -> None:
    with pytest.raises(StudyError, match="nothing for cedar"):
        published(linear=True, block_epsilon={key: value for key, value in BLOCKS.items() if key != "cedar"})
