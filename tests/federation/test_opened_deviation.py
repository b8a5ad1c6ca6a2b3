"""The deviation that a release states is that of the noise in what is opened, whoever was lost."""

from __future__ import annotations

import numpy as np
import pytest

from comity.federation.declare.bounds import Ball, EntrySum
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.protection import Derived, Perturbed, Summed
from comity.federation.declare.release import Array, Release
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import Approx, Pure
from comity.privacy.mechanisms import Noise
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.mechanisms.spherical import Spherical
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise

WHO = Consortium(parties=tuple("abcdef"), loss=Approx(1, 1e-6), colluders=1, dropouts=2)
GAUSSIAN = Gaussian(gaussian_budget(Approx(1, 1e-6)))
SHAPE = (20_000,)


def release(noise: Noise, **others: object) -> Release:
    given = {"source": EVERY_PARTY, "to": COORDINATOR, "protection": Summed(noise), **others}
    bound = EntrySum(each=1, moved=2, largest=1) if noise.norm == "l1" else Ball(radius=1)
    return Release(name="sum", form=Array(SHAPE, "<i8"), bound=bound, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("noise", [GAUSSIAN, Laplace(Pure(1))])
@pytest.mark.parametrize("parties", [None, 4])
def test_it_is_that_of_the_parts_that_were_added(noise: Noise, parties: int | None) -> None:
    one = release(noise)
    scale, source = one.scale(WHO), SeededNoise(5)
    drawn = sum(
        noise.draw(source, scale, SHAPE, permit=simulated_permit("sum", index), part=True) * scale.grid
        for index in range(parties or WHO.size)
    )
    assert np.std(drawn) == pytest.approx(one.opened_deviation(WHO, parties), rel=0.03)


def test_one_party_more_than_the_noise_was_laid_out_for_is_noise_on_top() -> None:
    laid_out = release(GAUSSIAN).opened_deviation(WHO, 3)
    assert release(GAUSSIAN).opened_deviation(WHO, 6) == pytest.approx(2**0.5 * laid_out)
    # A reader's own part is taken as known, so that each of the others is larger.
    assert release(GAUSSIAN, known_parts=2).opened_deviation(WHO, 6) > 1.2 * 2**0.5 * laid_out


def test_a_trusted_coordinator_adds_its_noise_once() -> None:
    one = release(GAUSSIAN, source=COORDINATOR, protection=Perturbed(GAUSSIAN, of="votes"))
    scale = one.scale(WHO)
    drawn = GAUSSIAN.draw(SeededNoise(6), scale, SHAPE, permit=simulated_permit("sum")) * scale.grid
    assert np.std(drawn) == pytest.approx(one.opened_deviation(WHO), rel=0.03)


def test_what_carries_no_noise_of_its_own_states_none() -> None:
    with pytest.raises(Exception, match="not declared with noise"):
        release(GAUSSIAN, source=COORDINATOR, protection=Derived("sum")).opened_deviation(WHO)


def test_spherical_noise_is_wider_on_a_coordinate_the_more_there_are() -> None:
    one = release(Spherical(Pure(1)))
    scale = one.scale(WHO)
    assert one.opened_deviation(WHO, 3) == pytest.approx(scale.total * scale.grid * (SHAPE[0] + 1) ** 0.5)
