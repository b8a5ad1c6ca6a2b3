"""Private choices at a site: one debit and one permit for all that a mechanism draws, the result leaves or stays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.audit import epsilon_lower_bound
from comity.errors import DataError, Refused, StudyError
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Ball
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, ITSELF, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Computed, Derived, Noised, Summed
from comity.federation.declare.release import Array, Count
from comity.federation.messages.codec import decode
from comity.federation.owner.site import Site
from comity.federation.plan import plan
from comity.federation.protocol import Protocol, step
from comity.privacy.loss import ZCDP, Loss, Pure
from comity.privacy.mechanisms import Gaussian
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import SeededNoise
from comity.study.local.stacks import require_stacks
from comity.study.simulation.simulate import simulate
from tests.support.asks import answer_ask, write_ask
from tests.support.consortia import list_draws, make_consortium, make_records
from tests.support.rounds import begin_host, host_party, set_up_run


@dataclass(frozen=True)
class BestOf:
    """Which of several counts is largest, by report noisy max with exponential noise of mean 2/ε.

    Sensitivity  a record that is replaced moves each count by at most one.
    """

    loss: Pure
    narrower: float = 1.0
    name: str = "noisy max"

    @property
    def charged(self) -> Loss:
        return self.loss

    @property
    def sensitivity(self) -> float:
        return 1.0

    def check(self, values: Any) -> None:
        if np.ndim(values) != 1 or not np.issubdtype(np.asarray(values).dtype, np.integer):
            raise DataError("counts were expected")

    def run(self, source: Any, values: Any, *, permit: Any) -> int:
        scale = 2.0 / float(self.loss.epsilon) * self.narrower
        return int(source.noisy_max(np.asarray(values), scale, permit=permit))


HALF = BestOf(Pure("0.5"))


def gains(features: np.ndarray) -> np.ndarray:
    """For each column, how many records lie on the larger side of zero: a tree would split where most do."""
    above = (features > 0).sum(axis=0)
    found: np.ndarray = np.maximum(above, len(features) - above).astype(np.int64)
    return found


@dataclass(frozen=True)
class Stumps(Protocol):
    """Each party chooses a column privately; those that the coordinator sees, and those that stay for a noisy count."""

    name = "stumps"
    stays: bool = False
    mechanism: Any = HALF
    most: int = 2

    def declare(self, consortium: Consortium) -> Declaration:
        return Declaration(
            (
                Release(
                    name="split",
                    source=EVERY_PARTY,
                    to=ITSELF if self.stays else COORDINATOR,
                    protection=Computed(self.mechanism),
                    form=Count(self.most),
                    times=2,
                ),
                Release(
                    name="above",
                    source=EVERY_PARTY,
                    to=COORDINATOR,
                    protection=Summed(Gaussian(ZCDP(0.05))),
                    form=Array((1,), "<i8"),
                    bound=Ball(20.0),
                ),
                Release(
                    name="result",
                    source=COORDINATOR,
                    to=EVERYONE,
                    protection=Derived("split", "above"),
                    form=Array((1,)),
                ),
            ),
            adversary="a curious coordinator",
        )

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        for label in range(2):
            parties.ask(self.look if self.stays else self.choose, label=label)
        return {"result": parties.sum(self.count).value}

    @step(sends="split")
    def choose(self, site: Site) -> None:
        site.compute(gains(site.features))

    @step(times=2)
    def look(self, site: Site) -> None:
        site.compute(gains(site.features), name="split")

    @step(sends="above")
    def count(self, site: Site) -> None:
        column = site.computed("split", 1) if self.stays else 0
        site.contribute(np.array([(site.features[:, column] > 0).sum()], float))


def test_a_choice_leaves_with_one_debit_and_is_the_same_when_it_is_asked_for_again(tmp_path: Path) -> None:
    one = begin_host(Stumps(), folder=tmp_path)
    first = answer_ask(one, write_ask("choose[0]"))
    assert decode(first)["ok"]["split"] in (0, 1, 2) and list_draws(one) == [("split", 0)]
    # A site that was killed after it stored its reply finds it again, whatever its noise would draw now.
    for _ in range(5):
        again = host_party(Stumps(), make_consortium(), "ash", tmp_path)
        assert answer_ask(again, write_ask("choose[0]")) == first
    assert list_draws(again) == [("split", 0)]
    assert "ok" in decode(answer_ask(again, write_ask("choose[1]"))) and list_draws(again) == [
        ("split", 0),
        ("split", 1),
    ]
    assert decode(answer_ask(again, write_ask("choose[2]")))["refused"] == "too-often"


def test_a_choice_that_stays_is_there_for_later_steps_and_nowhere_else() -> None:
    parties, hosts = set_up_run(Stumps(stays=True))
    released = run(parties)
    assert set(released) == {"result"} and "split" not in parties.kept
    assert all(list_draws(one) == [("split", 0), ("split", 1), ("above", 0)] for one in hosts.values())
    crossed = [to for path, to in parties.journal.traffic(parties.study, "run-1") if path.startswith("look")]
    seen = [decode(exchange.reply or b"") for to in crossed for exchange in to.values()]
    assert len(seen) == 10 and all(reply["ok"] == {} for reply in seen)


def test_a_choice_is_charged_like_noise() -> None:
    shown = plan("study", Stumps(), make_consortium())
    assert shown.rows[0].protection == "computed at the site by noisy max" and shown.rows[0].loss == "eps 1.00"
    parties, hosts = set_up_run(Stumps())
    run(parties)
    assert all(list_draws(one) == [("split", 0), ("split", 1), ("above", 0)] for one in hosts.values())
    reserved = parties.declaration.draws("ash", parties.consortium)
    assert [(d.index, d.loss, d.mechanism, d.sensitivity) for d in reserved if d.release == "split"] == [
        (index, Pure("0.5"), "BestOf", 1.0) for index in range(2)
    ]
    assert set(parties.kept["split"][0]) == set(hosts) and len(parties.kept["split"]) == 2


@dataclass(frozen=True)
class Wrong(Stumps):
    """Steps that do what they may not."""

    @step(sends="split")
    def twice(self, site: Site) -> None:
        site.compute(gains(site.features))
        site.compute(gains(site.features))

    @step(times=2)
    def elsewhere(self, site: Site) -> None:
        site.compute(gains(site.features), name="split")

    @step(sends="split")
    def of_words(self, site: Site) -> None:
        site.compute(np.array(["a", "b"]))

    @step(sends="above")
    def of_noise(self, site: Site) -> None:
        site.compute(gains(site.features))

    @step(times=3)
    def too_often(self, site: Site) -> None:
        site.compute(gains(site.features), name="split")
        if site.label == "1":
            site.compute(gains(site.features), name="split")


@pytest.mark.parametrize(
    ("path", "stays", "code"),
    [
        ("elsewhere[0]", False, "undeclared"),
        ("of_words[0]", False, "stopped"),
        ("of_noise[0]", False, "undeclared"),
        ("too_often[2]", True, "too-often"),
    ],
)
def test_what_is_wrong_is_found_before_the_debit(path: str, stays: bool, code: str) -> None:
    one = begin_host(Wrong(stays=stays))
    assert decode(answer_ask(one, write_ask(path)))["refused"] == code
    assert list_draws(one) == []


@pytest.mark.parametrize(
    ("protocol", "path"),
    [
        (Wrong(), "twice[0]"),
        (Wrong(stays=True), "too_often[1]"),
        # Whether what was drawn fits its form is a fact about the data, and is paid for.
        (Stumps(most=-1), "choose[0]"),
    ],
)
def test_what_is_wrong_after_the_draw_is_debited_and_stopped_for_good(protocol: Any, path: str) -> None:
    one = begin_host(protocol)
    assert "stopped" in decode(answer_ask(one, write_ask(path)))
    assert len(list_draws(one)) == 1
    assert "stopped" in decode(answer_ask(one, write_ask(path)))
    assert len(list_draws(one)) == 1


@dataclass(frozen=True)
class Telling(Stumps):
    """Gives a value beside its choice that is not what was declared."""

    @step(sends="split")
    def tell(self, site: Site) -> dict[str, Any]:
        return {"result": np.full(1, float(site.compute(gains(site.features))))}


def test_a_result_that_can_not_leave_does_not_say_so_for_free() -> None:
    one = begin_host(Telling())
    assert "stopped" in decode(answer_ask(one, write_ask("tell[0]")))
    assert list_draws(one) == [("split", 0)]


def test_a_computed_release_has_no_sum_and_only_a_computed_one_stays() -> None:
    parties, _ = set_up_run(Stumps())
    begin(parties)
    with pytest.raises(Refused, match="there is no sum"):
        parties.sum(Stumps().choose)
    release = Release(
        name="x", source=EVERY_PARTY, to=ITSELF, protection=Noised(Gaussian(ZCDP(1))), form=Array((1,)), bound=Ball(1.0)
    )
    with pytest.raises(ValueError, match="only a computed release"):
        Declaration((release,), adversary="-").accept(make_consortium())
    stays = Stumps(stays=True).declare(make_consortium())["split"]
    for to in ((ITSELF, "birch"), (ITSELF,)):
        with pytest.raises(ValueError, match="and then to no other"):
            Declaration((replace(stays, to=to),), adversary="-").accept(make_consortium())
    stays.check(1, "ash", "ash", make_consortium(), {})
    for other in ("birch", COORDINATOR):
        with pytest.raises(Refused, match="not declared"):
            stays.check(1, "ash", other, make_consortium(), {})
    with pytest.raises(StudyError, match="split is made at one site at a time"):
        require_stacks(Stumps(), Stumps().declare(make_consortium()), make_consortium())


def test_a_seeded_simulation_chooses_the_same_again() -> None:
    def splits(seed: Any) -> Any:
        parties = {name: make_records(name) for name in ("ash", "birch", "cedar")}
        found = simulate(Stumps(), parties=parties, epsilon=2, delta=1e-6, unit="record", seed=seed)
        return found.released["split"]

    assert splits(3) == splits(3)
    assert any(splits(3) != splits(seed) for seed in range(4, 9))


def chosen(mechanism: BestOf, scores: np.ndarray, count: int, seed: int) -> np.ndarray:
    noise = SeededNoise(seed)
    return np.array([mechanism.run(noise, scores, permit=simulated_permit("split")) for _ in range(count)])


@pytest.mark.parametrize(("narrower", "holds"), [(1.0, True), (0.4, False)])
def test_the_choice_of_neighbours_is_no_clearer_than_charged(narrower: float, holds: bool) -> None:
    """One record moved from one column's larger side to the other's; a mechanism with too little noise is caught."""
    mechanism = BestOf(Pure(1), narrower=narrower)
    one, other = (chosen(mechanism, np.array(scores), 4000, 5) for scores in ([10, 9], [9, 10]))
    assert (epsilon_lower_bound(one, other) <= 1) is holds
