from __future__ import annotations

import contextlib
import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from comity.errors import ComityError, DataError, Refused, StudyError
from comity.privacy.permit import Permit
from comity.privacy.randomness import ReleasedNoise, SeededNoise

DRAWS = {
    "laplace": lambda source, permit: source.discrete_laplace(2.0, (3,), permit=permit),
    "gaussian": lambda source, permit: source.rounded_gaussian(2.0, (3,), permit=permit),
    "spherical": lambda source, permit: source.spherical(20.0, (3,), permit=permit),
    "noisy max": lambda source, permit: source.noisy_max(np.array([1, 2]), 2.0, permit=permit),
    "exponential": lambda source, permit: source.exponential_choice(np.array([1, 2]), 2.0, permit=permit),
}
SOURCES: list[Any] = [ReleasedNoise(), SeededNoise(1)]


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
@pytest.mark.parametrize("source", SOURCES, ids=["released", "seeded"])
def test_a_permit_buys_one_draw(source: Any, draw: Any) -> None:
    permit = Permit("votes", 3)
    draw(source, permit)
    assert permit.used
    with pytest.raises(Refused, match=r"votes\[3\]"):
        draw(source, permit)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_a_draw_needs_a_permit(draw: Any) -> None:
    with pytest.raises(AttributeError):
        draw(SeededNoise(1), None)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_permit_has_no_copy(duplicate: Any) -> None:
    with pytest.raises(Refused):
        duplicate(Permit("votes", 0))


def test_a_mechanism_draws_as_often_as_it_says_under_one_permit() -> None:
    permit, source = Permit("tree", 1), SeededNoise(1)
    with permit.several(3) as within:
        assert permit.used
        for _ in range(3):
            assert not within.used
            source.discrete_laplace(2.0, (2,), permit=within)
        assert within.used
        with pytest.raises(Refused, match=r"tree\[1\]"):
            source.discrete_laplace(2.0, (2,), permit=within)
    with pytest.raises(Refused), permit.several(3):
        pass


@pytest.mark.parametrize("failing", [False, True])
def test_nothing_is_drawn_after_the_mechanism(failing: bool) -> None:
    permit, kept = Permit("tree", 1), []
    with contextlib.suppress(ZeroDivisionError), permit.several(3) as within:
        kept.append(within)
        if failing:
            raise ZeroDivisionError
    with pytest.raises(Refused):
        SeededNoise(1).discrete_laplace(2.0, (2,), permit=kept[0])


def test_a_draw_of_a_mechanism_is_not_made_into_several() -> None:
    with Permit("tree", 1).several(1) as within:
        with pytest.raises(Refused):
            within.several(2)
        with pytest.raises(Refused):
            copy.copy(within)


def test_a_permit_that_is_used_covers_no_mechanism() -> None:
    permit = Permit("tree", 1)
    permit.use()
    with pytest.raises(Refused), permit.several(2):
        pass


def test_of_many_threads_as_many_draw_as_are_covered() -> None:
    with Permit("tree", 0).several(5) as within, ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(attempt, [within] * 40)) == 5


def attempt(permit: Permit) -> bool:
    try:
        permit.use()
    except Refused:
        return False
    return True


def test_of_many_threads_one_draws() -> None:
    with ThreadPoolExecutor(16) as pool:
        for index in range(50):
            permit = Permit("votes", index)
            assert sum(pool.map(attempt, [permit] * 16)) == 1


@pytest.mark.parametrize("source", SOURCES, ids=["released", "seeded"])
@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf"), 2.0**51])
def test_a_bad_scale_is_refused_before_the_permit_is_used(source: Any, scale: Any) -> None:
    for draw in (source.discrete_laplace, source.rounded_gaussian, source.spherical):
        permit = Permit("votes", 0)
        with pytest.raises(StudyError):
            draw(scale, (3,), permit=permit)
        assert not permit.used


@pytest.mark.parametrize("source", SOURCES, ids=["released", "seeded"])
@pytest.mark.parametrize("scores", [[], [0.5, 1.0], [[], []], [float("nan")], [2**60]])
def test_bad_scores_are_refused_before_the_permit_is_used(source: Any, scores: Any) -> None:
    permit = Permit("best", 0)
    with pytest.raises(DataError):
        source.noisy_max(np.array(scores), 1.0, permit=permit)
    assert not permit.used


def test_spherical_noise_narrower_than_its_dimension_is_refused() -> None:
    for source in SOURCES:
        permit = Permit("model", 0)
        with pytest.raises(ComityError, match="finer"):
            source.spherical(3.0, (10,), permit=permit)
        assert not permit.used
