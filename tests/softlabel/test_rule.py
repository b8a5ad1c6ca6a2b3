"""One rule from public quantities: what it takes where, and that it says why."""

from __future__ import annotations

import numpy as np
import pytest

from comity.errors import StudyError
from comity.federation.consortium import Consortium
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import Approx, Pure
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.spherical import Spherical
from comity.protocols.softlabel.mechanism import mechanism
from comity.protocols.softlabel.rule import cell_count, choose, class_sum_directions, noise_multiplier, vote_directions
from comity.protocols.softlabel.statistics import Cells, ClassSums, Votes
from comity.runtime.numbered import Numbered

ROWS = np.random.default_rng(0).normal(size=(1000, 30))


def who(parties: int = 1000, loss=None, **terms) -> Consortium:
    return Consortium(parties=Numbered(parties), loss=loss or Approx(1, 1e-6), **terms)


def test_the_layout_of_activities():
    """1,000 parties of six records and six classes: sums at ε 10 and 1, cells at 0.1, as the recipe says."""
    found = [choose(who(loss=Approx(e, 1e-6)), ROWS, classes=6, records_per_party=6) for e in (10, 1, 0.1)]
    assert [type(choice.statistic) for choice in found] == [ClassSums, ClassSums, Cells]
    assert found[0].statistic.dimensions == 30 and "452 directions" in found[0].why
    assert "too few for sums" in found[2].why and found[2].statistic.shape == (6, 10)


def test_pure_epsilon_and_many_records_take_votes():
    pure = choose(who(loss=Pure(0.1)), ROWS, classes=6, records_per_party=6)
    many = choose(who(), ROWS, classes=2, records_per_party=22)
    assert isinstance(pure.statistic, Votes) and "pure" in pure.why
    assert isinstance(many.statistic, Votes) and "22 records per party" in many.why
    assert isinstance(choose(who(), ROWS, classes=10, records_per_party=50).statistic, ClassSums)


def test_directions_of_votes_follow_the_noise():
    """At pure ε the length of the noise, k numbers times sqrt(M/(M − 1))/ε, is a fifth of half the parties."""
    assert vote_directions(who(20_000, Pure(0.01)), 2, 43_000) == 19
    assert vote_directions(who(20_000, Pure(0.1)), 2, 43_000) == 199
    assert vote_directions(who(20_000, Pure(0.1)), 2, 300) == 30
    assert vote_directions(who(100, Pure(0.001)), 2, 43_000) == 5
    few, many = (vote_directions(who(m, Approx(0.1, 1e-6)), 3, 10**6) for m in (5_000, 20_000))
    assert many == pytest.approx(16 * few, rel=0.2)


def test_colluders_and_dropouts_cost_directions():
    plain, guarded = who(), who(colluders=500)
    assert noise_multiplier(guarded) == pytest.approx(noise_multiplier(plain) * np.sqrt(999 / 500))
    assert class_sum_directions(guarded, 6) < class_sum_directions(plain, 6)
    assert class_sum_directions(who(dropouts=300), 6) < class_sum_directions(plain, 6)


def test_cells_are_no_fewer_than_classes_and_leave_rows_for_each():
    assert cell_count(who(100, Approx(0.1, 1e-6)), 1, 6, 1000) == 6
    assert cell_count(who(10**6), 6, 6, 1000) == 100


def test_a_choice_does_not_look_at_anything_private():
    """The same public quantities give the same statistic, number for number."""
    one, other = (choose(who(loss=Approx(0.1, 1e-6)), ROWS, classes=3, records_per_party=4) for _ in range(2))
    np.testing.assert_array_equal(one.statistic.centres, other.statistic.centres)
    assert one.why == other.why


def test_what_is_missing_or_wrong_is_named():
    with pytest.raises(StudyError, match="records_per_party is missing"):
        choose(who(), ROWS, classes=3)
    with pytest.raises(StudyError, match="records_per_party must be 1 or more"):
        choose(who(), ROWS, classes=3, records_per_party=0)
    with pytest.raises(StudyError, match="must be one of"):
        choose(who(), ROWS, classes=3, records_per_party=3, statistic="sums")
    assert isinstance(choose(who(), ROWS, classes=3, statistic="votes").statistic, Votes)


CASES = [(0.01, 6, Spherical), (0.01, 500, Gaussian), (1.0, 60, Gaussian)]


@pytest.mark.parametrize(("epsilon", "size", "kind"), CASES)
def test_with_a_delta_the_quieter_noise_is_taken(epsilon, size, kind):
    loss = Approx(epsilon, 1e-6)
    chosen = mechanism(loss, size)
    assert isinstance(chosen, kind)

    def deviation(noise):
        scale = noise.scale(sensitivity=1.0, shape=(size,), parts=1)
        return scale.total * scale.grid * (np.sqrt(size + 1) if isinstance(noise, Spherical) else 1)

    others = [Spherical(Pure(epsilon)), Gaussian(gaussian_budget(loss))]
    assert deviation(chosen) == pytest.approx(min(map(deviation, others)), rel=1e-6)
