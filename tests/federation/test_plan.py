"""What a plan says beyond the releases: what several records lose, and figures that promise next to nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, cast

import pytest

from comity.errors import Refused
from comity.federation.declare.bounds import Ball
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium, default_colluders
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Noised, Summed
from comity.federation.declare.release import Array
from comity.federation.plan import double_loss, plan
from comity.federation.protocol import Protocol
from comity.privacy.accounting import Spent, budget_to_rho, zcdp_epsilon
from comity.privacy.loss import ZCDP, Approx, Loss, Pure, format_up
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.spherical import Spherical
from comity.privacy.unit import Unit


@dataclass(frozen=True, kw_only=True)
class Mean(Protocol):
    name = "mean"
    summed: bool = True
    times: int = 1
    units: int | None = None

    def declare(self, consortium: Consortium) -> Declaration:
        noise = (
            Spherical(consortium.loss)
            if isinstance(consortium.loss, Pure)
            else Gaussian(budget_to_rho(consortium.loss))
        )
        release = Release(
            name="mean",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=Summed(noise) if self.summed else Noised(noise),
            form=Array((3,), "<i8"),
            bound=Ball(1.0),
            times=self.times,
        )
        return Declaration((release,), adversary="a curious coordinator")

    def declared_units(self, consortium: Consortium) -> int | None:
        return self.units


@dataclass(frozen=True, kw_only=True)
class Mounting(Mean):
    """A mean with a part of its own."""

    part_of: Protocol

    @property
    def parts(self) -> Any:
        return {"inner": self.part_of}


class Demanding(Mean):
    """A part that can't run in any consortium."""

    def declare(self, consortium: Consortium) -> Declaration:
        raise Refused("three are needed", key="parties")


def make_consortium(loss: Loss, unit: Unit = Unit.RECORD, **more: Any) -> Consortium:
    return Consortium(parties=("ash", "birch", "cedar", "doum"), loss=loss, unit=unit, **more)


def note(loss: Loss, unit: Unit = Unit.RECORD, **options: Any) -> str:
    found = plan("study", Mean(**options), make_consortium(loss, unit)).notes
    return next(one for one in found if one.startswith("the unit is"))


@pytest.mark.parametrize("summed", [True, False])
def test_two_records_lose_what_twice_the_distance_does(summed: bool) -> None:
    """Gaussian noise: four times what one release costs in rho or in mu^2, not twice."""
    consortium = make_consortium(Approx(1.0, 1e-6))
    loss = Mean(summed=summed).declare(consortium)["mean"].loss
    assert loss is not None
    exact, wrong = (Spent.zero().add(loss * steps).epsilon_at(Decimal("1e-6")) for steps in (4, 2))
    said = note(Approx(1.0, 1e-6), summed=summed)
    # By the zCDP of the noise at twice the sensitivity, which bounds it from above; one release alone is below 1.
    above = zcdp_epsilon(4 * float(budget_to_rho(Approx(1, 1e-6)).rho), 1e-6)
    assert 1.9 < float(exact) <= above < 2.12
    assert f"at eps {format_up(exact, decimals=2)} instead of 0.9274 (delta 1e-6)" in said
    assert format_up(wrong, decimals=2) not in said


def test_two_records_lose_twice_a_pure_epsilon() -> None:
    said = note(Pure("0.4"), times=3)
    assert "at eps 2.40 instead of 1.20;" in said and "delta" not in said


def test_a_person_at_several_parties_is_said_to_be_one() -> None:
    assert "omeone at two parties" in note(Pure(1), Unit.PERSON)
    assert not [one for one in plan("s", Mean(), make_consortium(Pure(1), Unit.PARTY)).notes if "m parties" in one]


def test_group_privacy_of_two_adds_a_step_for_each() -> None:
    assert double_loss(Pure("0.3")) == Pure("0.6")
    assert cast(ZCDP, double_loss(budget_to_rho(Approx(1, 1e-6)))).rho == budget_to_rho(Approx(1, 1e-6)).rho * 4


@pytest.mark.parametrize(("epsilon", "warned"), [("20", False), ("20.1", True), ("29", True)])
def test_an_epsilon_that_promises_next_to_nothing_gets_a_warning(epsilon: str, warned: bool) -> None:
    made = plan("study", Mean(), make_consortium(Pure(epsilon)))
    assert any("above 20" in one for one in made.warnings) is warned
    assert ("WARNING        eps" in made.as_text()) is warned
    assert made.as_json()["warnings"] == list(made.warnings)


@pytest.mark.parametrize(
    ("delta", "units", "warned"),
    [
        ("1e-3", 1000, False),
        ("1.001e-3", 1000, True),
        ("1e-6", 1000, False),
        ("1e-2", None, True),
        ("1e-4", None, False),
    ],
)
def test_a_delta_above_one_in_the_declared_number_gets_a_warning(delta: str, units: Any, warned: bool) -> None:
    made = plan("study", Mean(units=units), make_consortium(Approx(1, delta)))
    assert any(one.startswith("delta") for one in made.warnings) is warned


def test_a_plan_checks_that_its_sums_can_be_opened() -> None:
    three = replace(make_consortium(Pure(1)), parties=("ash", "birch", "cedar"), colluders=1, dropouts=1)
    with pytest.raises(Refused, match="needs 3 to finish") as found:
        plan("study", Mean(), three)
    assert found.value.key == "privacy.dropouts"
    # A party that begins accepts the declaration itself, whatever plan its coordinator made.
    with pytest.raises(Refused, match="needs 3 to finish"):
        Mean().declare(three).accept(three)
    # Noise of each site's own needs no sum to be opened.
    assert plan("study", Mean(summed=False), make_consortium(Pure(1), dropouts=2)).parties == 4


def test_a_plan_checks_the_parts_of_a_protocol() -> None:
    with pytest.raises(Refused, match="three are needed"):
        plan("study", Mounting(part_of=Demanding()), make_consortium(Pure(1)))


def test_a_plan_of_very_many_says_what_their_sums_rest_on() -> None:
    def noted(size: Any, colluders: int = 1) -> list[Any]:
        parties = tuple(f"p{k:03}" for k in range(size))
        consortium = Consortium(parties=parties, loss=Approx(1, 1e-6), colluders=colluders)
        format_up = plan("study", Mean(), consortium)
        return [note for note in format_up.notes if note.startswith("secure sums: ")]

    assert noted(40) == []
    for size, drawn, opening in ((41, 7, 5), (100, 6, 5), (300, 5, 4)):
        (note,) = noted(size)
        assert f"picks {drawn} others" in note and f"any {opening} of these {drawn + 1} can recover" in note
        assert "2^-39" in note and "its colluders were fixed before the share holders were picked" in note
    # With so many colluders everyone is everyone's holder, and nothing rests on chance.
    assert noted(60, colluders=20) == []


@pytest.mark.parametrize(
    ("size", "said"),
    [(2, "2 times"), (3, "1.5 times"), (60, "1.02 times"), (300, "1.003 times"), (100_000, "1.00001 times")],
)
def test_a_plan_tells_a_factor_of_the_variance_from_one(size: int, said: str) -> None:
    consortium = Consortium(parties=tuple(f"p{k:03}" for k in range(size)), loss=Approx(1, 1e-6))
    (note,) = [note for note in plan("study", Mean(), consortium).notes if "sufficient" in note]
    assert f"(variance {said} a trusted coordinator's)" in note


def test_where_nobody_says_how_many_collude_one_does_as_long_as_another_stays_honest() -> None:
    assert [default_colluders(parties, 0) for parties in (1, 2, 3, 100)] == [0, 1, 1, 1]
    assert [default_colluders(3, dropouts) for dropouts in (0, 1, 2, 3)] == [1, 1, 0, 0]
