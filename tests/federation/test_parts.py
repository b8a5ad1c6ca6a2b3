"""A step sees the records of its own part and no others, whatever the method declares or asks for; a ledger shows the
study's loss once, and a run that was killed goes on with the parts that it began with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from comity.data import Records
from comity.errors import Refused, StudyError
from comity.federation.agreement import Agreement
from comity.federation.coordinator.lifecycle import begin, run
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Ball
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.evaluation import HOLDOUT, TRAINING, Evaluation, split_budget
from comity.federation.declare.payers import spent_by
from comity.federation.declare.policy import Policy
from comity.federation.declare.protection import Derived, Summed
from comity.federation.declare.release import Array
from comity.federation.evaluation.score_card import PredictionTask
from comity.federation.messages.ask import StepPath
from comity.federation.owner.site import Site
from comity.federation.part import Part
from comity.federation.protocol import Protocol, step
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import Approx
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.unit import Neighbours, Unit
from tests.support.consortia import STUDY, make_consortium
from tests.support.noise import NoNoise
from tests.support.rounds import set_up_run

LOSS = Approx(1, "1e-6")
SEEN: dict[str, list[tuple[str, np.ndarray]]] = {}


class Watching:
    """A model that notes whom it was shown."""

    def __init__(self, party: str = "") -> None:
        self.party = party

    def rowwise(self) -> Watching:
        return self

    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        SEEN.setdefault("evaluated", []).append((self.party, rows.copy()))
        return np.column_stack([np.full(len(rows), 0.4), np.full(len(rows), 0.6)])

    def predict(self, rows: np.ndarray) -> np.ndarray:
        return np.ones(len(rows))


@dataclass(frozen=True)
class Sums(Protocol):
    """The sum of all features, called a model."""

    name: ClassVar[str] = "sums"
    sly: bool = False

    @property
    def prediction_task(self) -> PredictionTask:
        return PredictionTask(2)

    def declare(self, consortium: Consortium) -> Declaration:
        noise = Summed(Gaussian(gaussian_budget(consortium.loss)))
        sums = Release(
            name="sums",
            source=EVERY_PARTY,
            to=COORDINATOR,
            protection=noise,
            form=Array((3,), "<i8"),
            bound=Ball(100.0),
        )
        model = Release(name="model", source=COORDINATOR, to=EVERYONE, protection=Derived("sums"), form=Array((3,)))
        return Declaration((sums, model), adversary="", holdout=("sums",) if self.sly else ())

    def coordinate(self, parties: Parties) -> dict[str, Any]:
        return {"model": parties.sum(self.add).value}

    def present(self, released: Any, consortium: Consortium) -> Watching:
        return Watching()

    @step(sends="sums")
    def add(self, site: Site) -> None:
        SEEN.setdefault("trained", []).append((site.party, site.features.copy()))
        site.keep("rows", site.features)
        site.contribute(site.features.sum(0))

    @step(sends="evaluation")
    def smuggle(self, site: Site) -> None:
        """A training step that would pay with the other part's money."""
        site.contribute(np.zeros(8))

    @step()
    def ask(self, site: Site) -> None:
        """Reads what steps of the evaluation keep."""
        if site.kept("kept by the evaluation") is not None:
            raise AssertionError


def make_evaluated_consortium(
    neighbours: Neighbours = Neighbours.REPLACE, unit: Unit = Unit.RECORD, **asked: float
) -> Consortium:
    loss, terms = split_budget(LOSS, unit, neighbours, **asked)
    return replace(make_consortium(4, dropouts=0), loss=loss, unit=unit, neighbours=neighbours, evaluation=terms)


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    SEEN.clear()


def seen(kind: str) -> list[np.ndarray]:
    return [rows for _, rows in SEEN[kind]]


def setup(folder: Path | None = None, terms: Consortium | None = None, **given: Any) -> tuple[Parties, dict[str, Any]]:
    return set_up_run(
        Sums(), terms or make_evaluated_consortium(), folder, noise=NoNoise(), **{"epsilon": 1.0, **given}
    )


def test_every_record_is_trained_on_or_measured_on_and_none_both() -> None:
    coordinator, hosts = setup()
    run(coordinator)
    trained = dict(SEEN["trained"])
    assert [len(rows) for rows in seen("evaluated")] == [4] * 4
    measured = {row.tobytes() for rows in seen("evaluated") for row in rows}
    for party, host in hosts.items():
        everything = {row.tobytes() for row in host.records.features}
        own = {row.tobytes() for row in trained[party]}
        assert len(own) == 16 and own < everything and not own & measured
        assert everything - own <= measured


def test_without_an_evaluation_a_step_sees_all_records() -> None:
    coordinator, hosts = set_up_run(Sums(), replace(make_evaluated_consortium(), evaluation=None), noise=NoNoise())
    run(coordinator)
    assert "evaluated" not in SEEN and [len(rows) for rows in seen("trained")] == [20] * 4
    entries = hosts["ash"].store.ledger.entries()
    assert {entry.step for entry in entries if entry.kind == "reserve"} == {""}


def test_the_ledger_shows_the_loss_once() -> None:
    coordinator, hosts = setup()
    released = run(coordinator)
    assert released["quality"].shape == (released["quality"].size,)
    for host in hosts.values():
        [account] = host.store.ledger.summary()
        assert account.spent.gaussian == gaussian_budget(LOSS).square and account.left == 0
        parts = {entry.release: entry.step for entry in host.store.ledger.entries() if entry.kind == "reserve"}
        assert parts == {"sums": TRAINING, "evaluation": HOLDOUT}
        host.store.ledger.verify()


def test_a_whole_party_pays_for_both() -> None:
    terms = make_evaluated_consortium(unit=Unit.PARTY, budget=0.2)
    agreement = Agreement(STUDY, Sums(), terms)
    spent = spent_by(agreement.declaration, "ash", terms)
    assert spent.gaussian == gaussian_budget(LOSS).square
    assert {draw.part for draw in agreement.declaration.draws("ash", terms)} == {""}
    own = gaussian_budget(terms.loss).square
    assert own < spent.gaussian and own + gaussian_budget(terms.evaluation.loss).square == spent.gaussian  # type: ignore[union-attr]


# Attacks.


def test_a_method_that_calls_its_release_one_of_the_other_part_is_refused() -> None:
    with pytest.raises(StudyError, match="does not see"):
        Sums(sly=True).accepted(make_evaluated_consortium())
    with pytest.raises(StudyError, match="does not see"):
        Sums(sly=True).accepted(replace(make_evaluated_consortium(), evaluation=None))


def test_a_training_step_can_not_contribute_to_the_evaluation() -> None:
    coordinator, hosts = setup()
    begin(coordinator)
    with pytest.raises(Refused, match="does not see the records"):
        coordinator.agreement.step(StepPath("", "smuggle", "0"))
    with pytest.raises(Refused):
        coordinator.sum(Sums().smuggle)
    assert all(entry.kind != "draw" for entry in hosts["ash"].store.ledger.entries())


def test_a_site_refuses_it_even_where_the_path_was_let_through() -> None:
    _, hosts = setup()
    site = Site(hosts["ash"], "run-1", StepPath("", "smuggle", "0"), "evaluation")
    with pytest.raises(Refused, match="does not see"):
        site.contribute(np.zeros(8))
    assert not site.effects.draws


def test_an_evaluation_step_can_not_contribute_to_the_method() -> None:
    _, hosts = setup()
    site = Site(hosts["ash"], "run-1", StepPath("evaluation", "evaluate", "0"), "sums")
    with pytest.raises(Refused, match="does not see"):
        site.contribute(np.zeros(3))


def test_what_one_part_keeps_is_not_seen_by_the_other() -> None:
    _, hosts = setup()
    aside = Site(hosts["ash"], "run-1", StepPath("evaluation", "evaluate", "0"), None)
    aside.keep("rows", [1])
    training = Site(hosts["ash"], "run-1", StepPath("", "add", "0"), None)
    training.effects = aside.effects
    assert training.kept("rows") is None and aside.kept("rows") == [1]


def test_a_method_can_not_mount_a_part_among_those_of_the_evaluation() -> None:
    class Mounting(Sums):
        @property
        def parts(self) -> dict[str, Part]:
            return {"evaluation_align": Sums()}

    with pytest.raises(ValueError, match="can't be mounted"):
        _ = Agreement(STUDY, Mounting(), make_evaluated_consortium()).mounts


def test_records_are_not_shown_before_the_run_began_here() -> None:
    _, hosts = setup()
    with pytest.raises(Refused, match="has not begun"):
        _ = Site(hosts["ash"], "run-1", StepPath("", "add", "0"), None).records


def test_a_policy_counts_every_run_in_full() -> None:
    """What one run measures on, the next one trains on."""
    agreement = Agreement(STUDY, Sums(), make_evaluated_consortium())
    given = {
        "study": STUDY,
        "protocol": "sums",
        "declaration": agreement.declaration,
        "party": "ash",
        "consortium": make_evaluated_consortium(),
    }
    policy = Policy(approved=None, epsilon_per_study=Decimal("1.01"), delta_per_study=Decimal("1e-6"))
    policy.check(runs=0, **given)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="epsilon_per_study"):
        policy.check(runs=1, **given)  # type: ignore[arg-type]


# Kills.


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_a_run_that_was_killed_goes_on_with_the_same_parts(tmp_path: Path, neighbours: Neighbours) -> None:
    terms = make_evaluated_consortium(neighbours)
    coordinator, hosts = setup(tmp_path, terms, epsilon=3.0)
    begin(coordinator)
    coordinator.protocol.coordinate(coordinator)
    before = dict(SEEN["trained"])
    # The ledgers are about replaced records.
    square = gaussian_budget(LOSS).square * (1 if neighbours is Neighbours.REPLACE else 4)
    assert hosts["ash"].store.ledger.summary()[0].spent.gaussian == square
    again, hosts = setup(tmp_path, terms, epsilon=3.0)
    run(again)
    assert len(SEEN["trained"]) == 4
    measured = {row.tobytes() for rows in seen("evaluated") for row in rows}
    for party, host in hosts.items():
        assert {row.tobytes() for row in host.records.features} - {row.tobytes() for row in before[party]} <= measured
        [account] = host.store.ledger.summary()
        assert account.spent.gaussian == square
        assert host.store.state("run-1", "run:parts") is None


def test_a_run_that_ends_before_the_evaluation_is_charged_for_training_alone(tmp_path: Path) -> None:
    coordinator, hosts = setup(tmp_path)
    begin(coordinator)
    coordinator.protocol.coordinate(coordinator)
    hosts["ash"].store.abandon("run-1")
    [account] = hosts["ash"].store.ledger.summary()
    assert account.spent.gaussian == gaussian_budget(LOSS).square and not account.reserved.gaussian
    hosts["ash"].store.ledger.verify()


def test_another_run_sets_other_records_aside(tmp_path: Path) -> None:
    for number in range(2):
        coordinator, _ = set_up_run(Sums(), make_evaluated_consortium(), None, noise=NoNoise(), run=f"run-{number}")
        run(coordinator)
    first, second = (
        {row.tobytes() for rows in half for row in rows} for half in np.split(np.array(seen("evaluated")), 2)
    )
    assert first != second


def test_terms_travel_with_the_consortium() -> None:
    terms = make_evaluated_consortium().evaluation
    assert isinstance(terms, Evaluation) and terms.parallel and terms.count(20) == 4
    records = Records(np.zeros((3, 2)))
    assert terms.left(len(records)) == 3
