"""Rounds of a trusted curator: each has noise of its own, journalled once, no more often than declared."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from comity.errors import Malformed, Refused
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Ball, OpenedValue
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Entrusted, Perturbed, Public, Summed
from comity.federation.declare.release import Array, Count
from comity.federation.messages.codec import decode
from comity.federation.owner.site import Site
from comity.federation.protocol import Protocol, step
from comity.privacy.loss import ZCDP
from comity.privacy.mechanisms import Gaussian, PrefixSums
from comity.privacy.randomness import SeededNoise
from tests.support.asks import answer_ask, write_ask
from tests.support.consortia import list_draws, make_consortium
from tests.support.noise import NoNoise
from tests.support.rounds import host_party, set_up_run

WHITE = Gaussian(ZCDP(0.05))


@dataclass(frozen=True)
class Walk:
    """Noise of a round is the sum of all draws so far: what a prefix sum with correlated noise looks like."""

    white: Any = WHITE
    rounds: int = 3

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "white"), name)

    def draw_next(self, source: Any, scale: Any, shape: Any, *, permit: Any, state: Any) -> Any:
        drawn = self.white.draw(source, scale, shape, permit=permit)
        total = drawn if state is None else state["so far"] + drawn
        return total, {"so far": total}


@dataclass(frozen=True)
class Curated(Protocol):
    """A mean that a trusted coordinator releases anew in each round."""

    name = "curated"
    rounds: int = 3
    entrusted: int = 3
    asked: int = 3
    noise: Any = WHITE

    def declare(self, consortium: Consortium) -> Declaration:
        return Declaration(
            (
                Release(
                    name="mean",
                    source=EVERY_PARTY,
                    to=COORDINATOR,
                    protection=Entrusted(WHITE),
                    form=Array((3,), "<i8"),
                    bound=Ball(2.0),
                    grid=2.0**-10,
                    times=self.entrusted,
                ),
                Release(
                    name="noisy",
                    source=COORDINATOR,
                    to=EVERYONE,
                    protection=Perturbed(self.noise, of="mean"),
                    form=Array((3,)),
                    bound=OpenedValue(l2=4.0, limit=20.0),
                    grid=2.0**-10,
                    times=self.rounds,
                ),
            ),
            adversary="whoever sees the rounds",
        )

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        value = parties.sum(self.average).value
        for _ in range(self.asked):
            noisy = parties.perturb("noisy", value)
        return {"noisy": noisy}

    @step(sends="mean", stacked=True)
    def average(self, site: Site) -> None:
        site.contribute(site.features.mean(axis=-2))


def rounds(parties: Parties) -> list[np.ndarray]:
    """A run that is killed before it has written its result down."""
    begin(parties)
    parties.protocol.coordinate(parties)
    found: list[np.ndarray] = parties.kept["noisy"]
    return found


RUNNING = PrefixSums(loss=ZCDP(0.05), rounds=3)


@pytest.mark.parametrize("noise", [WHITE, Walk(), RUNNING], ids=["white", "correlated", "prefix sums"])
def test_each_round_has_noise_of_its_own_and_the_same_when_resumed(noise: Any) -> None:
    parties, hosts = set_up_run(Curated(noise=noise), noise=SeededNoise(5), epsilon=50)
    first = rounds(parties)
    assert len(first) == 3 and len({one.tobytes() for one in first}) == 3
    again, _ = set_up_run(Curated(noise=noise), noise=SeededNoise(6), hosts=hosts)
    again.journal = parties.journal
    assert [one.tobytes() for one in rounds(again)] == [one.tobytes() for one in first]


def test_a_run_that_was_killed_between_rounds_goes_on_with_what_it_drew() -> None:
    """Correlated noise needs what was drawn before; the journal has it, the process that drew it is gone."""
    drawn = [np.full(3, 2**k, np.int64) for k in range(3)]

    class Powers(NoNoise):
        def rounded_gaussian(self, sigma: Any, shape: Any, *, permit: Any) -> Any:
            permit.use()
            return drawn[permit.index]

    parties, hosts = set_up_run(Curated(noise=Walk(), asked=2), noise=Powers(), epsilon=50)
    first = rounds(parties)
    again, _ = set_up_run(Curated(noise=Walk()), noise=Powers(), hosts=hosts)
    again.journal = parties.journal
    after = rounds(again)
    assert [one.tobytes() for one in after[:2]] == [one.tobytes() for one in first]
    grid = again.declaration["noisy"].scale(again.consortium).grid
    steps = [np.rint((b - a) / grid) for a, b in pairwise(after)]
    assert [one.tolist() for one in steps] == [[2.0] * 3, [4.0] * 3]


def test_no_more_rounds_than_declared() -> None:
    parties, _ = set_up_run(Curated(asked=4), noise=SeededNoise(5), epsilon=50)
    with pytest.raises(Refused, match="declared 3 times") as found:
        rounds(parties)
    assert found.value.code == "too-often"


def test_a_curator_draws_no_more_often_than_the_parties_paid_for() -> None:
    """One entrusted release and three noises of it would cost three times what its ledgers say."""
    with pytest.raises(ValueError, match="noised 3 times, but mean pays for 1"):
        Curated(entrusted=1).declare(make_consortium()).accept(make_consortium())
    # Noise that is laid out for all rounds together is charged for all of them.
    Curated(entrusted=1, noise=Walk()).declare(make_consortium()).accept(make_consortium())


@dataclass(frozen=True)
class Giving(Protocol):
    """A step that says something public beside what it contributes."""

    name = "giving"
    fails: bool = False

    def declare(self, consortium: Consortium) -> Declaration:
        return Declaration(
            (
                Release(
                    name="mean",
                    source=EVERY_PARTY,
                    to=COORDINATOR,
                    protection=Summed(WHITE),
                    form=Array((3,), "<i8"),
                    bound=Ball(2.0),
                ),
                Release(
                    name="columns", source=EVERY_PARTY, to=COORDINATOR, protection=Public("a width"), form=Count(9)
                ),
            ),
            adversary="a curious coordinator",
        )

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        total = parties.sum(self.average)
        assert {party: of["columns"] for party, of in total.given.items()} == dict.fromkeys(parties.alive, 3)
        return {}

    @step(sends="mean", gives=("columns",))
    def average(self, site: Site) -> dict[str, Any]:
        if self.fails:
            raise ArithmeticError("a fit failed")
        site.contribute(site.features.mean(axis=0))
        return {"columns": site.features.shape[1]}


def test_a_step_that_contributes_keeps_its_other_values() -> None:
    parties, _ = set_up_run(Giving())
    assert run(parties) == {}


def test_where_more_is_given_than_a_contribution_nothing_is_neutral() -> None:
    """A party whose fit failed contributes neutrally; but there is no neutral value of what it gives beside that."""
    one = host_party(Giving(fails=True), make_consortium(), "ash")
    answer_ask(one, write_ask("run.begin[0]"))
    assert decode(answer_ask(one, write_ask("average[0]")))["refused"] == "stopped"
    assert not list_draws(one)


def test_steps_on_stacks_give_nothing_beside_their_contribution() -> None:
    with pytest.raises(ValueError, match="can only contribute"):
        step(sends="mean", gives=("columns",), stacked=True)


def test_running_sums_have_the_noise_of_one_seed() -> None:
    """The first round draws the seed; the others are functions of it, so that no later draw could be made twice."""
    parties, _ = set_up_run(Curated(noise=RUNNING), noise=SeededNoise(5), epsilon=50)
    found = rounds(parties)
    scale = parties.declaration["noisy"].scale(parties.consortium)
    seeds = [parties.once(f"noise:noisy/{k}", pytest.fail)["state"]["seed"] for k in range(3)]
    assert len(set(seeds)) == 1
    expected = [RUNNING.noise(seeds[0], scale, (3,)).of(k) for k in range(3)]
    steps = [np.rint((b - a) / scale.grid) for a, b in pairwise(found)]
    assert [one.tolist() for one in steps] == [(b - a).tolist() for a, b in pairwise(expected)]


def test_running_sums_lie_on_their_grid() -> None:
    """A sum that is rounded anew in each round moves by another unit in each that follows a change, not in one."""
    parties, _ = set_up_run(Curated(noise=RUNNING), noise=SeededNoise(5), epsilon=50)
    with pytest.raises(Malformed, match="each summand on its grid"):
        parties.perturb("noisy", np.full(3, 2.0**-11))


def test_noise_is_laid_out_for_as_many_rounds_as_are_made() -> None:
    with pytest.raises(ValueError, match="made 4 times, but its noise is planned for 3"):
        Curated(noise=RUNNING, rounds=4).declare(make_consortium()).accept(make_consortium())
