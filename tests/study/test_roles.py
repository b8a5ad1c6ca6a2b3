"""Roles in a study: a simulation keeps them, each role pays its own loss, and whoever reads about it sees whose."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.artefacts.table import Table
from comity.data import Records, clinic_schema
from comity.errors import BudgetExceeded, StudyError
from comity.federation.declare.bounds import Ball
from comity.federation.declare.consortium import COORDINATOR, EVERYONE, Consortium
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Derived, Noised, Summed
from comity.federation.declare.release import Array
from comity.federation.protocol import Protocol, step
from comity.privacy.loss import Pure
from comity.privacy.mechanisms import Spherical
from comity.report.card import write_card
from comity.report.result import load_result
from comity.study.records.party_data import PartyData
from comity.study.results.result import Result
from comity.study.simulation.ledgers import grants_by_party
from comity.study.simulation.simulate import run_study
from comity.study.study import Study
from comity.study.tables import PartyTable, check_roles
from tests.support.protocols import simulate_with

ROLES = {"owner": ("ash", "birch"), "consumer": ("elm",)}
PARTIES = {name: Records(np.full((4, 2), 0.1)) for name in ("ash", "birch", "elm")}


@dataclass(frozen=True, kw_only=True)
class Summary(Protocol):
    """The owners' sum and the consumer's wish, at 1 and at 1.44."""

    name = "summary"
    roles = ("owner", "consumer")

    def declare(self, consortium: Consortium) -> Declaration:
        def sent(name: str, source: str, protection: Summed | Noised) -> Release:
            return Release(
                name=name,
                source=source,
                to=COORDINATOR,
                protection=protection,
                form=Array((2,), "<i8"),
                bound=Ball(1.0),
            )

        return Declaration(
            (
                sent("held", "owner", Summed(Spherical(Pure(1)))),
                sent("wished", "consumer", Noised(Spherical(Pure("1.44")))),
                Release(
                    name="result",
                    source=COORDINATOR,
                    to=EVERYONE,
                    protection=Derived("held", "wished"),
                    form=Array((2,)),
                ),
            ),
            adversary="a curious coordinator",
        )

    def coordinate(self, parties: Any) -> Any:
        return {"result": parties.sum(self.hold).value + parties.sum(self.wish).value}

    @step(sends="held")
    def hold(self, site: Any) -> None:
        site.contribute(site.features.mean(axis=0))

    @step(sends="wished")
    def wish(self, site: Any) -> None:
        site.contribute(site.features.mean(axis=0))


def simulated(**more: Any) -> Result:
    return simulate_with(Summary(), parties=PARTIES, epsilon=1, unit="record", roles=ROLES, **more)


def test_a_simulation_keeps_roles_and_charges_each_what_it_pays() -> None:
    outcome = simulated(grant={"ash": 1.0, "birch": 1.5, "elm": 2.0})
    assert outcome.consortium.roles == ROLES
    assert [account.spent for account in outcome.accounts] == ["eps 1.00", "eps 1.00", "eps 1.44"]
    assert outcome.guarantee.epsilon == pytest.approx(1.44) and outcome.guarantee.loss == "eps 1.44"
    with pytest.raises(BudgetExceeded):
        simulated(grant={"ash": 1.0, "birch": 1.0, "elm": 1.4})


def test_whoever_reads_about_a_run_sees_each_payer(tmp_path: Path) -> None:
    result = simulated()
    owners, consumer = "each owner (ash, birch)", "consumer (elm)"
    assert result.guarantee.losses == {consumer: "eps 1.44", owners: "eps 1.00"}
    assert f"eps 1.44 for {consumer}; eps 1.00 for {owners}" in str(result.guarantee)
    assert "per party" not in str(result.guarantee)
    card = write_card(result, Table(("a",), ((1,),)))
    assert f"- Loss of {consumer}: eps 1.44" in card and f"- Loss of {owners}: eps 1.00" in card
    result.save(tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "the most of a party" in page and f"In all: eps 1.44 for {consumer}; eps 1.00 for {owners}." in page
    assert "eps 1.44 for each party" not in page and "eps 1.00 for each party" not in page
    written = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    assert [payer["loss"] for payer in written["guarantee"]["payers"]] == ["eps 1.44", "eps 1.00"]
    again = load_result(tmp_path / "run")
    assert again.guarantee == result.guarantee and again.plan.payers == result.plan.payers


def test_where_all_pay_alike_each_party_is_said_to() -> None:
    same = replace(simulated().guarantee, payers=())
    assert same.losses == {"each party": "eps 1.44"} and "eps 1.44 per party" in str(same)


STUDY = """
[study]
name = "roles"
protocol = "averaging"
schema = "schema.toml"
[privacy]
unit = "record"
epsilon = 1
[averaging]
sizes = 4
[parties.ash]
[parties.birch]
[parties.elm]
"""


@pytest.fixture
def study(tmp_path: Path) -> Study:
    (tmp_path / "schema.toml").write_text(clinic_schema().to_toml())
    read = Study.parse(STUDY, folder=tmp_path)
    roles = {"ash": "owner", "birch": "owner", "elm": "consumer"}
    tables = {name: PartyTable(role=role) for name, role in roles.items()}
    return replace(read, parties=tables, protocol=Summary())


def test_a_study_names_roles_and_its_simulation_grants_what_each_is_asked(study: Study, tmp_path: Path) -> None:
    assert study.consortium.roles == ROLES
    assert grants_by_party(study, study.agreement) == {"ash": 1.0, "birch": 1.0, "elm": 1.441}
    (tmp_path / "run").mkdir()
    outcome = run_study(study, data=PartyData(PARTIES, None), folder=tmp_path / "run")
    assert [account.spent for account in outcome.accounts] == ["eps 1.00", "eps 1.00", "eps 1.44"]
    assert outcome.consortium == study.consortium
    tight = replace(study, simulation=study.simulation.model_copy(update={"grant": 1.2}))
    with pytest.raises(BudgetExceeded, match=r"simulation\.grant"):
        run_study(tight, data=PartyData(PARTIES, None))


@pytest.mark.parametrize(
    ("role", "said"), [("cosumer", r"did you mean consumer\?"), ("broker", "has the roles owner, consumer")]
)
def test_a_role_that_the_method_does_not_have_is_refused(role: str, said: str) -> None:
    with pytest.raises(StudyError, match=said) as found:
        check_roles({"ash": PartyTable(role="owner"), "elm": PartyTable(role=role)}, Summary(), "study.toml")
    assert found.value.key == "parties.elm.role"


def test_a_method_without_roles_refuses_any(tmp_path: Path, study: Study) -> None:
    with pytest.raises(StudyError, match="averaging has no roles; remove the key") as found:
        Study.parse(STUDY.replace("[parties.elm]", '[parties.elm]\nrole = "consumer"'), folder=tmp_path)
    assert found.value.key == "parties.elm.role"
