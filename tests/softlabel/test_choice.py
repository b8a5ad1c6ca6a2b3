"""One rule from public quantities: what it takes where, and that it says why."""

from __future__ import annotations

from math import sqrt
from typing import Any, cast

import numpy as np
import pytest

from comity.errors import StudyError
from comity.federation.declare.consortium import Consortium
from comity.methods.softlabel.choice import (
    Choice,
    choose_noise,
    count_cells,
    count_sum_directions,
    count_vote_directions,
    noise_multiplier,
)
from comity.methods.softlabel.method import SoftLabel
from comity.methods.softlabel.record_sums import Cells, ClassSums, NamedClass
from comity.methods.softlabel.votes import Votes
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import Approx, Pure
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.spherical import Spherical
from comity.study.local.stacks import NumberedParties

ROWS = np.random.default_rng(0).normal(size=(1000, 30))


def chosen(consortium: Any, rows: Any, **options: Any) -> Choice:
    """The choice of a study that leaves everything else at its default."""
    classes = tuple(f"class {k}" for k in range(options.pop("classes")))
    sizes = options.pop("records_per_party", None)
    return SoftLabel.over_rows(auxiliary=rows, classes=classes, sizes=sizes, **options).choice(consortium)


def make_consortium(parties: int = 1000, loss: Any = None, **terms: Any) -> Any:
    return Consortium(parties=NumberedParties(parties), loss=loss or Approx(1, 1e-6), **terms)


def test_the_layout_of_activities() -> None:
    """1,000 parties of six records and six classes: sums at ε 10 and 1, cells at 0.1."""
    found = [chosen(make_consortium(loss=Approx(e, 1e-6)), ROWS, classes=6, records_per_party=6) for e in (10, 1, 0.1)]
    assert [type(choice.statistic) for choice in found] == [ClassSums, ClassSums, Cells]
    assert cast(ClassSums, found[0].statistic).dimensions == 30 and "30 directions" in found[0].why
    assert "too few for 6 classes" in found[2].why and found[2].statistic.shape == (6, 10)


def test_pure_epsilon_takes_votes_and_two_classes_sums_whatever_the_noise() -> None:
    pure = chosen(make_consortium(loss=Pure(0.1)), ROWS, classes=6, records_per_party=6)
    assert isinstance(pure.statistic, Votes) and "pure" in pure.why
    for parties, epsilon, records in ((1000, 1, 22), (24, 1, 50), (24, 0.1, 500), (1000, 10, 2)):
        two = chosen(make_consortium(parties, Approx(epsilon, 1e-6)), ROWS, classes=2, records_per_party=records)
        assert isinstance(two.statistic, ClassSums)
    assert isinstance(chosen(make_consortium(), ROWS, classes=10, records_per_party=50).statistic, ClassSums)


def test_plans_of_clusters_say_that_classes_may_not_follow_them() -> None:
    several, two = (SoftLabel.over_rows(auxiliary=ROWS, classes=tuple("abcdef"[:n]), sizes=20) for n in (6, 2))
    terms = make_consortium(100)
    assert isinstance(several.choice(terms).statistic, Cells)
    assert any("clusters of the public records" in note for note in several.notes(terms))
    assert not any("clusters" in note for note in two.notes(terms))


def test_clusters_stand_where_sums_have_fewer_than_three_directions_for_each_class() -> None:
    found = [
        chosen(make_consortium(24, Approx(e, 1e-6)), ROWS, classes=5, records_per_party=20) for e in (9, 10, 11, 12)
    ]
    kept = [count_sum_directions(make_consortium(24, Approx(e, 1e-6)), 20, 5, 30) for e in (9, 10, 11, 12)]
    assert min(kept) < 15 <= max(kept)
    assert [isinstance(one.statistic, ClassSums) for one in found] == [directions >= 15 for directions in kept]


def test_counts_that_are_mostly_noise_are_left_for_the_most_frequent_class() -> None:
    for records in (2, 20):
        found = chosen(make_consortium(100, Approx(0.1, 1e-6)), ROWS, classes=6, records_per_party=records)
        assert isinstance(found.statistic, NamedClass) and "expect a constant" in found.why
    # What counts is the noise of one cell, however many classes there are.
    for classes in (5, 10):
        noisy, plain = (
            chosen(make_consortium(24, Approx(e, 1e-6)), ROWS, classes=classes, records_per_party=20).statistic
            for e in (0.4, 1)
        )
        assert isinstance(noisy, NamedClass) and isinstance(plain, Cells)
    four = chosen(make_consortium(24, Approx(0.1, 1e-6)), ROWS, classes=4, records_per_party=20).statistic
    assert type(four) is ClassSums and four.shape == (3, 1)
    assert isinstance(chosen(make_consortium(100), ROWS, classes=6, records_per_party=20).statistic, Cells)


def contrast_noise(terms: Consortium, classes: int, directions: int) -> float:
    """Of the release as it is declared, over as few parties as may be left, all of whom counted on their own part."""
    names = tuple("abcd"[:classes])
    one = SoftLabel.over_rows(auxiliary=ROWS, classes=names, statistic="class-sums", sizes=20)
    sums = ClassSums.on(ROWS, classes, records_per_party=20, dimensions=directions)
    vars(one)["_choose"] = lambda figures: Choice(sums, "")
    noise = one.deviation(terms, terms.survivors) * sqrt(terms.size / terms.survivors)
    return noise * sqrt(directions + 1) / sums.signal


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("terms", [(100, 1, {}), (600, 0.1, {}), (40, 2, {"dropouts": 4, "colluders": 2})])
def test_the_noise_of_summed_directions_is_what_the_declared_release_has(terms: Any, classes: int) -> None:
    """The most directions whose contrast has a fifth of the signal for its noise: one more would have more."""
    parties, epsilon, more = terms
    several = make_consortium(parties, Approx(epsilon, 1e-6), **more)
    kept = count_sum_directions(several, 20, classes, 30)
    assert 2 < kept < 30
    assert contrast_noise(several, classes, kept) <= 0.2 * (1 + 1e-3)
    assert contrast_noise(several, classes, kept + 1) > 0.2 * (1 - 1e-3)


def test_where_two_directions_are_mostly_noise_class_frequencies_are_left() -> None:
    found = chosen(make_consortium(24, Approx(0.1, 1e-6)), ROWS, classes=2, records_per_party=50)
    assert found.statistic.shape == (1, 1) and "expect a constant" in found.why
    assert chosen(make_consortium(24), ROWS, classes=2, records_per_party=50).statistic.shape == (1, 3)
    # Between a fifth and a quarter of the signal two directions are still summed, and no more beyond.
    shapes = [
        chosen(make_consortium(50, Approx(e, 1e-6)), ROWS, classes=2, records_per_party=20).statistic.shape
        for e in (0.3, 0.4)
    ]
    assert shapes == [(1, 1), (1, 3)]


def test_directions_of_votes_follow_the_noise() -> None:
    """At pure ε the length of the noise, k numbers times sqrt(M/(M − 1))/ε, is a fifth of half the parties."""
    assert count_vote_directions(make_consortium(20_000, Pure(0.01)), 2, 43_000) == 19
    assert count_vote_directions(make_consortium(20_000, Pure(0.1)), 2, 43_000) == 199
    assert count_vote_directions(make_consortium(20_000, Pure(0.1)), 2, 300) == 30
    assert count_vote_directions(make_consortium(100, Pure(0.001)), 2, 43_000) == 5
    few, many = (count_vote_directions(make_consortium(m, Approx(0.1, 1e-6)), 3, 10**6) for m in (5_000, 20_000))
    assert many == pytest.approx(16 * few, rel=0.2)


def test_colluders_and_dropouts_cost_directions() -> None:
    plain, guarded = make_consortium(), make_consortium(colluders=500)
    assert noise_multiplier(guarded) == pytest.approx(noise_multiplier(plain) * np.sqrt(999 / 500))
    assert count_sum_directions(guarded, 6, 2, 500) < count_sum_directions(plain, 6, 2, 500)
    assert count_sum_directions(make_consortium(dropouts=300), 6, 2, 500) < count_sum_directions(plain, 6, 2, 500)


def test_cells_are_no_fewer_than_half_the_classes_and_leave_rows_for_each() -> None:
    assert count_cells(make_consortium(100, Approx(0.1, 1e-6)), 1, 6, 1000) == 3
    assert count_cells(make_consortium(100, Approx(0.1, 1e-6)), 1, 2, 1000) == 2
    assert count_cells(make_consortium(10**6), 6, 6, 1000) == 100
    # Records that fill the cells of few records once more leave no room for others.
    assert (
        count_cells(make_consortium(), 6, 6, 10**6)
        < count_cells(make_consortium(), 25, 6, 10**6)
        == count_cells(make_consortium(), 400, 6, 10**6)
    )


def test_a_choice_does_not_look_at_anything_private() -> None:
    """The same public quantities give the same statistic, number for number."""
    one, other = (
        chosen(make_consortium(loss=Approx(0.1, 1e-6)), ROWS, classes=3, records_per_party=4) for _ in range(2)
    )
    np.testing.assert_array_equal(cast(Cells, one.statistic).centres, cast(Cells, other.statistic).centres)
    assert one.why == other.why


def test_what_is_missing_or_wrong_is_named() -> None:
    with pytest.raises(StudyError, match="sizes is missing"):
        chosen(make_consortium(), ROWS, classes=3)
    with pytest.raises(StudyError, match="sizes must be greater than or equal to 1, found 0"):
        chosen(make_consortium(), ROWS, classes=3, records_per_party=0)
    with pytest.raises(StudyError, match=r"softlabel\.statistic must be .*found .sums."):
        SoftLabel.over_rows(auxiliary=ROWS, sizes=3, statistic=cast(Any, "sums"))
    assert isinstance(chosen(make_consortium(), ROWS, classes=3, statistic="votes").statistic, Votes)


CASES = [(0.01, 6, Spherical), (0.01, 500, Gaussian), (1.0, 60, Gaussian)]


@pytest.mark.parametrize(("epsilon", "size", "kind"), CASES)
def test_with_a_delta_the_quieter_noise_is_taken(epsilon: Any, size: Any, kind: Any) -> None:
    loss = Approx(epsilon, 1e-6)
    chosen = choose_noise(loss, size)
    assert isinstance(chosen, kind)

    def deviation(noise: Any) -> Any:
        scale = noise.scale(sensitivity=1.0, shape=(size,), parts=1)
        return scale.total * scale.grid * (np.sqrt(size + 1) if isinstance(noise, Spherical) else 1)

    others = [Spherical(Pure(epsilon)), Gaussian(gaussian_budget(loss))]
    assert deviation(chosen) == pytest.approx(min(map(deviation, others)), rel=1e-6)


@pytest.mark.parametrize(
    ("parties", "epsilon", "classes", "said"),
    [
        (24, 0.1, 2, "hides every column"),
        (24, 0.1, 6, "hides every column"),
        (24, 1.0, 2, "no more accurate than a constant"),
        (100, 1.0, 2, None),
        (24, 1.0, 6, "a single run may be less accurate"),
        (24, 3.0, 6, None),
        (1000, 1.0, 6, None),
    ],
)
def test_a_plan_warns_where_noise_may_leave_no_more_than_a_constant(
    parties: int, epsilon: float, classes: int, said: str | None
) -> None:
    found = chosen(make_consortium(parties, Approx(epsilon, 1e-6)), ROWS, classes=classes, records_per_party=60)
    assert (said is None and found.warnings == ()) or (said is not None and said in found.warnings[0])


def test_a_warning_is_not_of_what_the_columns_themselves_limit() -> None:
    """Two columns have no more than two directions: the noise takes none of them."""
    found = chosen(make_consortium(1000), ROWS[:, :2], classes=2, records_per_party=60)
    assert found.statistic.shape == (1, 3) and found.warnings == ()
