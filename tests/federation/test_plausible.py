"""Every opened sum is compared with what public figures allow: a lie beyond them ends the run, and noise never does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from comity.errors import Implausible, Refused
from comity.federation.coordinator.journal import ABANDONED
from comity.federation.coordinator.lifecycle import run
from comity.federation.declare import plausibility
from comity.federation.declare.bounds import (
    Ball,
    Bound,
    Counts,
    EntrySum,
    OpenedValue,
    Range,
    RecordSum,
    Simplex,
    Weights,
)
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, Consortium
from comity.federation.declare.plausibility import NoiseTail, require_plausible
from comity.federation.declare.protection import Entrusted, Noised, Summed
from comity.federation.declare.release import Array, Release
from comity.federation.messages.codec import decode
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import Approx, Pure
from comity.privacy.mechanisms import Noise
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.mechanisms.spherical import Spherical
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from tests.support.asks import answer_ask, write_ask
from tests.support.consortia import make_consortium, summarise_accounts
from tests.support.noise import NoNoise
from tests.support.rounds import Rounds, set_up_run

from .test_lost_parties import Lying, ok

SHAPE = (3, 4)
L2: list[Bound] = [Ball(1.0), RecordSum(1.0, 40.0, 40), Simplex(3, 4), Counts((1, 1, 1), True, 50)]
L1: list[Bound] = [EntrySum(1.0, 2.0, 1.0), EntrySum(1.0, 2.0, 40.0, 40), Simplex(3, 4), Counts((1, 1, 1), False, 50)]


def consortium_of(parties: int, dropouts: int = 0) -> Consortium:
    names = tuple(f"p{place}" for place in range(parties))
    return Consortium(parties=names, loss=Pure(1), colluders=1 if parties > 1 else 0, dropouts=dropouts)


def release(noise: Noise, bound: Bound, protection: Any = Summed, shape: tuple[int, ...] = SHAPE) -> Release:
    return Release(
        name="sum",
        source=EVERY_PARTY,
        to=COORDINATOR,
        protection=protection(noise),
        form=Array(shape, "<i8"),
        bound=bound,
    )


def furthest(bound: Bound, generator: np.random.Generator) -> np.ndarray:
    """A contribution as far out as the bound lets it be, in a direction of chance; or the neutral one."""
    if generator.random() < 0.2:
        return bound.neutral(SHAPE)
    if isinstance(bound, Simplex):
        return np.eye(4)[generator.integers(0, 4, 3)]
    if isinstance(bound, Counts):
        return bound.enforce(np.rint(generator.choice([0.0, 50.0, 60.0], SHAPE)), SHAPE)
    return bound.enforce(1e6 * generator.choice([-1.0, 0.0, 1.0], SHAPE), SHAPE)


def honest_sum(one: Release, consortium: Consortium, present: int, seed: int) -> np.ndarray:
    """What is opened of parties that are as far out as they may be, with the noise of those that are left."""
    generator, source, scale = np.random.default_rng(seed), SeededNoise(seed), one.scale(consortium)
    part, noise = isinstance(one.protection, Summed), one.noise
    assert noise is not None
    units = np.zeros(one.shape, np.int64)
    same = furthest(one.bounded, generator)
    for place in range(present):
        value = same if seed % 2 else furthest(one.bounded, generator)
        units += np.rint(value / scale.grid).astype(np.int64)
        units += noise.draw(source, scale, one.shape, permit=simulated_permit("sum", place), part=part)
    return np.asarray(units * scale.grid, np.float64)


def honest(epsilon: float, parties: int, dropouts: int, seed: int) -> int:
    """Check honest sums of every bound under every noise; how many there were."""
    consortium, checked = consortium_of(parties, dropouts), 0
    cases: list[tuple[Noise, Bound]] = [(Laplace(Pure(epsilon)), bound) for bound in L1]
    cases += [(Gaussian(gaussian_budget(Approx(epsilon, 1e-6))), bound) for bound in L2]
    cases += [(Spherical(Pure(epsilon)), Ball(1.0)), (Spherical(Pure(epsilon)), RecordSum(1.0, 40.0, 40))]
    for noise, bound in cases:
        one = release(noise, bound, Summed if parties > 1 else Noised)
        require_plausible(one, consortium, honest_sum(one, consortium, parties - dropouts, seed), parties - dropouts)
        checked += 1
    return checked


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 40.0])
@pytest.mark.parametrize(("parties", "dropouts"), [(1, 0), (2, 0), (5, 2), (50, 20)])
def test_no_honest_sum_is_refused(epsilon: float, parties: int, dropouts: int) -> None:
    assert sum(honest(epsilon, parties, dropouts, seed) for seed in range(3)) == 30


@pytest.mark.long
def test_no_honest_sum_is_refused_in_thousands() -> None:
    generator, checked = np.random.default_rng(0), 0
    for seed in range(2000):
        parties = int(generator.integers(1, 51))
        dropouts = int(generator.integers(0, max(1, (parties - 1) // 2)))
        checked += honest(float(10 ** generator.uniform(-2, 1.6)), parties, dropouts, seed)
    assert checked == 20_000


KINDS: list[Noise] = [Gaussian(gaussian_budget(Approx(1, 1e-6))), Laplace(Pure(1)), Spherical(Pure(1))]


@pytest.mark.parametrize("noise", KINDS, ids=lambda noise: noise.name)
@pytest.mark.parametrize("parties", [2, 6])
def test_a_tail_is_exceeded_as_rarely_as_it_says_and_is_no_wider_than_need_be(
    noise: Noise, parties: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a probability that can be measured. A quarter of the tail is exceeded often, of Laplace noise a tenth."""
    monkeypatch.setattr(plausibility, "FALSE_ALARM", 0.08)
    consortium, width, runs = consortium_of(6, 3), 8, 400
    one = release(noise, EntrySum(1.0, 2.0, 1.0) if noise.norm == "l1" else Ball(1.0), shape=(width,))
    scale, source = one.scale(consortium), SeededNoise(7)
    drawn = np.array(
        [
            sum(
                noise.draw(source, scale, (width,), permit=simulated_permit("sum", k), part=True)
                for k in range(parties)
            )
            * scale.grid
            for _ in range(runs)
        ]
    )
    tail = NoiseTail(one, consortium, parties)
    signs = np.array([1.0, -1.0] * (width // 2))
    figures = [
        (np.abs(drawn).max(axis=1), float(tail.of_figures(Weights(), width))),
        (np.abs(drawn @ signs), float(tail.of_figures(Weights(width, width**0.5, 1.0), 1))),
        (np.linalg.norm(drawn, axis=1), tail.of_norm(width)),
    ]
    wide = 0.1 if isinstance(noise, Laplace) else 0.25
    for found, allowed in figures:
        assert (found > allowed).mean() <= 0.08, allowed
        assert (found > wide * allowed).mean() > 0.08, allowed


def test_the_tail_of_laplace_noise_is_exponential_where_it_is_rare() -> None:
    one, consortium = release(Laplace(Pure(1)), EntrySum(1.0, 2.0, 1.0), Noised, (1,)), consortium_of(1)
    scale = one.scale(consortium)
    rare = scale.total * scale.grid * np.log(1 / plausibility.FALSE_ALARM)
    assert rare <= float(NoiseTail(one, consortium, 1).of_figures(Weights(l1=0.0), 1)) <= 2 * rare


def test_what_carries_no_noise_may_be_off_by_its_rounding_and_no_more() -> None:
    one = replace(release(Laplace(Pure(1)), EntrySum(1.0, 2.0, 1.0), Entrusted), grid=0.5)
    require_plausible(one, consortium_of(5), np.full(SHAPE, 1.25), 1)
    with pytest.raises(Implausible):
        require_plausible(one, consortium_of(5), np.full(SHAPE, 1.75), 1)


FAR: list[tuple[Bound, Any]] = [
    (Ball(1.0), lambda far: np.full(SHAPE, 5 * (1 + far) / 12**0.5)),
    (RecordSum(1.0, 40.0, 40), lambda far: np.full(SHAPE, 5 * (40 + far) / 12**0.5)),
    (Simplex(3, 4), lambda far: np.tile([5 + far, -far, 0.0, 0.0], (3, 1))),
    (Simplex(3, 4), lambda far: np.tile([5 / 4 + far] * 4, (3, 1))),
    (Counts((1, 1, 1), True, 50), lambda far: np.full(SHAPE, -far)),
    (Counts((1, 1, 1), True, 50), lambda far: np.full(SHAPE, 250 + far)),
    (OpenedValue(l2=1.0, limit=30.0), lambda far: np.full(SHAPE, 30 + far)),
    (OpenedValue(l2=1.0, limit=30.0), lambda far: np.full(SHAPE, -30 - far)),
    (EntrySum(1.0, 2.0, 40.0, 40), lambda far: np.full(SHAPE, 200 + far)),
    (EntrySum(1.0, 2.0, 1.0), lambda far: np.full(SHAPE, -5 - far)),
]


@pytest.mark.parametrize(("bound", "value"), FAR)
def test_a_sum_beyond_its_bound_is_refused_in_one_sentence(bound: Bound, value: Any) -> None:
    consortium = consortium_of(5)
    noise: Noise = Gaussian(gaussian_budget(Approx(500, 1e-6)))
    one = release(Laplace(Pure(40)) if isinstance(bound, EntrySum) else noise, bound)
    require_plausible(one, consortium, value(0.0), 5)
    with pytest.raises(
        Implausible, match=r"^sum: the opened sum lies outside .* should be .* found .* begin a new run"
    ):
        require_plausible(one, consortium, value(60.0), 5)


def test_what_is_no_number_is_refused() -> None:
    one, value = release(KINDS[0], Ball(1.0)), np.zeros(SHAPE)
    value[0, 0] = np.nan
    with pytest.raises(Implausible):
        require_plausible(one, consortium_of(5), value, 5)


def test_rows_of_votes_sum_to_the_number_of_parties() -> None:
    one, consortium = release(Gaussian(gaussian_budget(Approx(500, 1e-6))), Simplex(3, 4)), consortium_of(5)
    require_plausible(one, consortium, np.full(SHAPE, 1.25), 5)
    with pytest.raises(Implausible, match="the sum of every row should be exactly 5"):
        require_plausible(one, consortium, np.full(SHAPE, 4.5), 5)


def test_fewer_contributions_allow_less() -> None:
    one, consortium = release(Gaussian(gaussian_budget(Approx(500, 1e-6))), Ball(10.0)), consortium_of(5, 2)
    value = np.full(SHAPE, 50 / 12**0.5)
    require_plausible(one, consortium, value, 5)
    with pytest.raises(Implausible):
        require_plausible(one, consortium, value, 3)


# In a run.


def test_a_lie_beyond_the_bounds_ends_the_run_for_all_and_nothing_is_made_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others get back what they never drew, nothing is left to resume, and the sentence stays."""
    consortium = make_consortium()
    parties, hosts = set_up_run(consortium=consortium)
    before = summarise_accounts(hosts)
    host = hosts["cedar"]
    monkeypatch.setattr(host.agreement.declaration["mean"].bounded.__class__, "enforce", _hundredfold(host.agreement))
    with pytest.raises(Implausible, match="mean: the opened sum lies outside of what public figures allow"):
        run(parties)
    assert parties.journal.recall("run-1", ABANDONED)["code"] == "implausible"
    drawn = {name: one.store.ledger.summary()[0] for name, one in hosts.items()}
    assert all(str(drawn[name]) != before[name][0] for name in hosts), "what was drawn stays spent"
    for name, one in hosts.items():
        assert one.store.runs_open() == [], name
        assert (
            decode(answer_ask(one, write_ask("average[1]", nonce=parties.journal.nonce("run-1"))))["refused"]
            == "closed"
        )
    resumed, _ = set_up_run(parties.protocol, consortium, hosts=hosts)
    resumed.journal = parties.journal
    with pytest.raises(Refused, match=r"run-1 was abandoned: mean: the opened sum lies outside"):
        run(resumed)


def test_what_a_method_knows_beyond_the_bound_ends_a_run_too() -> None:
    consortium = make_consortium()
    parties, hosts = set_up_run(consortium=consortium)
    total = np.array([17.0])
    parties.require("mean", 5, [Range("the answer", total, 17.0, 17.0)])

    def coordinate(asked: Any) -> Any:
        asked.sum(asked.protocol.average)
        asked.require("mean", 5, [Range("the answer", total, 1e9, 1e9 + 1)])

    object.__setattr__(parties.protocol, "coordinate", coordinate)
    with pytest.raises(Implausible, match="the answer should be from 1e"):
        run(parties)
    assert parties.journal.recall("run-1", ABANDONED)["code"] == "implausible"
    assert all(one.store.runs_open() == [] for one in hosts.values())


def _hundredfold(agreement: Any) -> Any:
    kind = type(agreement.declaration["mean"].bounded)
    before = kind.enforce

    def enforce(self: Any, value: Any, shape: Any) -> Any:
        return 1e4 * np.ones(shape) + before(self, value, shape)

    return enforce


@pytest.mark.parametrize("protection", [Noised, Entrusted])
def test_a_party_whose_own_value_is_seen_is_lost_for_a_lie_beyond_its_bound(protection: Any) -> None:
    consortium, agreed_on = make_consortium(), Rounds()
    declared = agreed_on.declare(consortium)
    noise = declared["mean"].noise

    class Seen(Rounds):
        def declare(self, consortium: Any) -> Any:
            found = super().declare(consortium)
            own = replace(found["mean"], protection=protection(noise), grid=2.0**-20)
            return replace(found, releases=tuple(own if one.name == "mean" else one for one in found.releases))

    parties, hosts = set_up_run(Seen(), consortium, noise=NoNoise())
    far = np.full(declared["mean"].shape, 1 << 40, "<i8")
    parties.channel = Lying(hosts, "average[0]", lambda reply: ok(reply, mean=far))
    run(parties)
    assert set(parties.lost) == {"ash"}
    assert "what ash sent lies outside of what public figures allow" in parties.lost["ash"]
