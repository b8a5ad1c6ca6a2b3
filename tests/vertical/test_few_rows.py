"""Few rows: declared sizes decide between rounds and the quadratic, noise that hides every column leaves a constant,
and less noise never makes a model worse."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.data import Categorical, Classes, Numeric, Schema
from comity.errors import StudyError
from comity.methods.vertical import GradientRegression, Vertical, VerticalRegression, add_noise, run_rounds
from comity.methods.vertical.method import COUNTED_FROM, ROUNDS_UP_TO, WARNED_FROM
from comity.methods.vertical.moments import MomentEntries, fit_regression
from comity.privacy import Approx, Neighbours, SeededNoise, Unit
from comity.protocol import Consortium

WIDTH = 12
NAMES = [f"x{place}" for place in range(WIDTH)]
SCHEMA = Schema(tuple(Numeric(name, -1, 1) for name in NAMES), Classes("y", ("no", "yes")))
COLUMNS = {"a": (*NAMES[::2], "y"), "b": tuple(NAMES[1::2])}


def protocol(**options: Any) -> VerticalRegression:
    return Vertical.over_columns(schema=SCHEMA, columns=COLUMNS, products="dealer", max_rows=1 << 16, **options)


def consortium(epsilon: float, colluders: int = 1) -> Consortium:
    return Consortium(
        parties=("a", "b"),
        loss=Approx(epsilon, 1e-6),
        unit=Unit.RECORD,
        neighbours=Neighbours.REPLACE,
        colluders=colluders,
    )


def rows(
    held: VerticalRegression, count: int, seed: int, share: float = 0.15, says: float = 1.0
) -> tuple[Any, Any, Any]:
    """Each party's columns of z, encoded rows and labels: rows of the second class are a `share` and differ in a few
    columns."""
    import pandas as pd

    generator = np.random.default_rng(seed)
    labels = generator.uniform(size=count) < share
    x = np.clip(
        generator.normal(0, 0.4, (count, WIDTH)) + 0.35 * says * labels[:, None] * (np.arange(WIDTH) < 4), -1, 1
    )
    frame = pd.DataFrame(x, columns=NAMES).assign(y=np.where(labels, "yes", "no"))
    design = held.design
    parts = {
        party: design.matrix(design.encoding_of(party).encode(frame[list(own)]).records, party)
        for party, own in COLUMNS.items()
    }
    return parts, design.encoding.encode(frame).records.features, labels


def accuracy(held: VerticalRegression, parts: Any, terms: Consortium, seed: int, features: Any, labels: Any) -> float:
    source = SeededNoise(seed)
    if isinstance(held, GradientRegression) and held.makes_rounds(terms):
        coef = run_rounds(held, parts, terms, source)[0]
    else:
        exact = held.entries.exact(np.hstack(list(parts.values())))
        coef = held.fit(add_noise(held, exact, terms, source), len(parts["a"]), terms).coef
    return float(np.mean((features @ coef > 0) == labels))


@pytest.mark.parametrize("solver", ["quadratic", "gradient"])
def test_a_table_that_noise_hides_gives_the_constant_and_not_less(solver: str) -> None:
    """200 rows at epsilon 0.6, of 12 columns; unshrunk weights are up to 0.2 below the constant."""
    held = protocol(solver=solver)
    parts, features, labels = rows(held, 200, 1)
    terms = consortium(0.6)
    assert held.entry_noise(terms, 200) > COUNTED_FROM
    found = [accuracy(held, parts, terms, seed, features, labels) - (1 - labels.mean()) for seed in range(12)]
    assert np.mean(found) > -0.01 and min(found) > -0.03


@pytest.mark.parametrize("solver", ["quadratic", "gradient"])
def test_less_noise_never_makes_a_model_worse(solver: str) -> None:
    """From epsilon 3 to a million; 300 rows, whose own chance moves an accuracy by about 0.02."""
    held = protocol(solver=solver)
    parts, _, _ = rows(held, 300, 2)
    _, features, labels = rows(held, 4000, 3)
    means = [
        np.mean([accuracy(held, parts, consortium(epsilon), seed, features, labels) for seed in range(4)])
        for epsilon in (3.0, 30.0, 1e3, 1e4, 1e6)
    ]
    assert all(later > max(means[:at], default=0.0) - 0.02 for at, later in enumerate(means))
    assert means[-1] > 1 - labels.mean() - 0.01


def by_hour(count: int, seed: int) -> tuple[VerticalRegression, Any, Any, Any]:
    """A protocol with rounds over rentals by hour and month, which are never many at night: weights of the night have
    no largest likelihood, and scores could grow without end."""
    import pandas as pd

    generator = np.random.default_rng(seed)
    levels = {"hour": 24, "month": 12, "day": 7}
    drawn = {name: generator.integers(0, most, count) for name, most in levels.items()}
    warm = np.clip(0.5 - 0.35 * np.cos(drawn["month"] / 2) + 0.1 * generator.normal(size=count), 0, 1)
    rented = 4 * warm + 1.5 * np.cos((drawn["hour"] - 17) / 3) + 0.8 * generator.normal(size=count)
    labels = (rented > 3.6) & (drawn["hour"] > 7)
    frame = pd.DataFrame({name: own.astype(str) for name, own in drawn.items()})
    frame = frame.assign(warm=warm, felt=warm**2, y=np.where(labels, "yes", "no"))
    columns = [Categorical(name, tuple(map(str, range(most)))) for name, most in levels.items()]
    held = Vertical.over_columns(
        schema=Schema((*columns, Numeric("warm", 0, 1), Numeric("felt", 0, 1)), Classes("y", ("no", "yes"))),
        columns={"a": ("month", "warm", "y"), "b": ("hour", "day", "felt")},
        products="dealer",
        max_rows=1 << 16,
        solver="gradient",
    )
    design = held.design
    parts = {
        party: design.matrix(design.encoding_of(party).encode(frame[list(own)]).records, party)
        for party, own in held.columns.items()
    }
    return held, parts, design.encoding.encode(frame).records.features, labels


def test_rounds_end_where_the_sums_say_whatever_the_noise() -> None:
    """Log loss of every run, from epsilon 10 to a million: early sums ask for larger scores than later ones."""
    held, parts, _, _ = by_hour(2000, 1)
    _, _, features, labels = by_hour(8000, 2)
    assert isinstance(held, GradientRegression)
    means = []
    for epsilon in (10.0, 100.0, 1e3, 1e4, 1e6):
        losses = []
        for seed in range(3):
            scores = features @ run_rounds(held, parts, consortium(epsilon), SeededNoise(seed))[0]
            losses.append(float(np.mean(np.logaddexp(0, np.where(labels, -scores, scores)))))
        assert max(losses) < min(losses) + 0.03
        means.append(np.mean(losses))
    assert all(later < min(means[:at], default=1.0) + 0.01 for at, later in enumerate(means))


def test_earlier_sums_are_carried_by_the_curvature_on_the_way() -> None:
    """With that of one end they ask for scores that grow without end, or for too small ones where classes are apart."""
    held = protocol(solver="gradient")
    assert isinstance(held, GradientRegression)
    parts, _, _ = rows(held, 2000, seed=1)
    descent = held.start(held.entries.exact(np.hstack(list(parts.values()))), 2000, consortium(1.0))
    near = descent.weights
    far = replace(descent, weights=6 * near)
    found, change = far._change_of_sums(near), 5 * near

    def carried(at: float) -> Any:
        return descent.whitened @ descent.distribution.curvature(near + at * change) @ change

    every = np.mean([carried((place + 0.5) / 400) for place in range(400)], axis=0)
    np.testing.assert_allclose(found, every, atol=0.02 * np.abs(every).max())
    latest, both = carried(1.0), (carried(0.0) + carried(1.0)) / 2
    assert np.abs(latest - every).max() > 0.2 * np.abs(every).max()
    assert np.abs(both - every).max() > 0.2 * np.abs(every).max()


def test_declared_sizes_and_not_epsilon_alone_decide_about_rounds() -> None:
    few, many, undeclared = protocol(sizes=200), protocol(sizes={"a": 30_000, "b": 20_000}), protocol()
    assert isinstance(few, GradientRegression) and isinstance(many, GradientRegression)
    assert isinstance(undeclared, GradientRegression) and many.declared_rows == 20_000
    assert undeclared.makes_rounds(consortium(1.0)) and not undeclared.makes_rounds(consortium(0.1))
    between = next(
        one
        for one in np.geomspace(10, 0.1, 200)
        if few.entry_noise(consortium(one), 200) > np.sqrt(ROUNDS_UP_TO * COUNTED_FROM)
    )
    assert not few.makes_rounds(consortium(between)) and many.makes_rounds(consortium(0.1))
    assert not few.counts_classes(consortium(between)) and "200 rows" in " ".join(few.notes(consortium(between)))
    assert few.counts_classes(consortium(0.3)) and "a counts alone" in " ".join(few.warnings(consortium(0.3)))


def test_rounds_that_make_the_noise_larger_need_less_of_it() -> None:
    """Parties read the weights of rounds, so one of them counts as a colluder. Without other colluders the quadratic
    has half of that variance, and is better up to a noise that is eight times smaller."""
    held = protocol(sizes=400)
    assert isinstance(held, GradientRegression)
    for colluders, limit in ((1, ROUNDS_UP_TO), (0, ROUNDS_UP_TO / 8)):
        for epsilon in np.geomspace(0.3, 100, 60):
            noise = held.entry_noise(consortium(epsilon), 400)
            assert held.makes_rounds(consortium(epsilon, colluders)) == (noise <= limit)


def test_the_plan_says_where_only_a_constant_is_possible() -> None:
    warned = protocol(sizes=100).warnings(consortium(0.3))
    assert any("can only give a constant" in one for one in warned)
    # 60 and 40 of 100 rows differ by 20, and their counts by noise of 26.
    assert any("wrong one in 22 % of runs; with privacy.delta = 0" in one for one in warned)
    assert not any("constant" in one for one in protocol(sizes=20_000).warnings(consortium(1.0)))
    assert not any("constant" in one for one in protocol().warnings(consortium(0.3)))


def test_the_plan_says_where_a_model_may_be_worse_than_a_constant() -> None:
    """Between the noise that leaves a constant and that at which none of the tables measured was below one; a linear
    model has no such rule."""
    held = protocol(sizes=2000)
    for epsilon in np.geomspace(0.1, 10, 30):
        noise, told = held.entry_noise(consortium(epsilon), 2000), " ".join(held.warnings(consortium(epsilon)))
        assert ("can only give a constant" in told) == (noise >= COUNTED_FROM)
        assert ("may give less than a constant" in told) == (WARNED_FROM <= noise < COUNTED_FROM)
    quadratic = protocol(sizes=2000, solver="quadratic")
    assert "may give less than a constant" in " ".join(quadratic.warnings(consortium(0.05)))


@pytest.mark.parametrize("solver", ["quadratic", "gradient"])
def test_the_moments_and_not_their_noise_decide_what_is_kept(solver: str) -> None:
    """800 rows at epsilon 1: columns that say much are kept, and columns that say nothing leave the constant, at the
    same public noise."""
    held, terms = protocol(solver=solver), consortium(1.0)
    for says, least, most in ((4.0, 0.08, 0.5), (0.0, -0.005, 0.005)):
        parts, features, labels = rows(held, 800, 5, share=0.3, says=says)
        found = [accuracy(held, parts, terms, seed, features, labels) - (1 - labels.mean()) for seed in range(6)]
        assert least < np.mean(found) < most and (says or min(found) > -0.02)


@pytest.mark.parametrize("says", [1.0, 4.0])
@pytest.mark.parametrize("solver", ["quadratic", "gradient"])
def test_accuracy_rises_with_epsilon(solver: str, says: float) -> None:
    """From 0.3 to 10 on 2,000 rows, with the same noise but for its size."""
    held = protocol(solver=solver)
    parts, _, _ = rows(held, 2000, 6, share=0.3, says=says)
    _, features, labels = rows(held, 8000, 7, share=0.3, says=says)
    means = [
        np.mean([accuracy(held, parts, consortium(epsilon), seed, features, labels) for seed in range(8)])
        for epsilon in (0.3, 1.0, 3.0, 10.0)
    ]
    assert all(later > earlier - 0.01 for earlier, later in pairwise(means))
    assert means[0] > 1 - labels.mean() - 0.01


def test_more_columns_at_the_same_noise_in_an_entry_are_trusted_as_much() -> None:
    """What columns tell lies in few directions: the noise's norm grows with their number, what can be learnt does not
    fall with it."""
    names = [f"x{place}" for place in range(4 * WIDTH)]
    wide = Vertical.over_columns(
        schema=Schema(tuple(Numeric(name, -1, 1) for name in names), Classes("y", ("no", "yes"))),
        columns={"a": (*names[::2], "y"), "b": tuple(names[1::2])},
        products="dealer",
        max_rows=1 << 16,
    )
    few, many = protocol().entry_noise(consortium(1.0), 1000), wide.entry_noise(consortium(1.0), 1000)
    assert many == pytest.approx(few, rel=0.1)


def test_wrong_sizes_are_refused() -> None:
    for sizes in (0, {"a": 10}, {"a": 10, "b": 10, "c": 10}):
        with pytest.raises(StudyError, match="sizes"):
            protocol(sizes=sizes).check_terms(consortium(1.0))


def test_a_study_without_sizes_keeps_its_hash(tmp_path: Path) -> None:
    with_sizes, without = Vertical(SCHEMA, columns=COLUMNS, sizes=9), Vertical(SCHEMA, columns=COLUMNS)
    assert "sizes" not in without.options_for_hash() and with_sizes.options_for_hash()["sizes"] == 9


def test_without_noise_the_classifier_of_many_rows_is_the_least_squares_one() -> None:
    """What sampling adds to the ridge fades with the rows."""
    held = protocol(solver="quadratic")
    parts, features, labels = rows(held, 40_000, 4, share=0.4)
    entries = MomentEntries.of(held.design)
    found = features @ fit_regression(entries, entries.exact(np.hstack(list(parts.values()))), len(labels), 0.0).coef
    exact = features @ np.linalg.lstsq(features, 2.0 * labels - 1, rcond=None)[0]
    assert np.corrcoef(found, exact)[0, 1] > 0.999
