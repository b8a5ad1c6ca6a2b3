"""The tables of a study file: what each key may hold, and what it is where the file says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from comity.errors import StudyError
from comity.federation.declare.consortium import check_party_names
from comity.federation.declare.evaluation import Evaluation, split_budget
from comity.federation.protocol import Protocol
from comity.methods.tables import Table, hint, validate
from comity.privacy.loss import Loss, loss_of
from comity.privacy.unit import Neighbours, Unit
from comity.study.naming import naming
from comity.study.predicting import PredictionTable


class StudyTable(Table):
    name: str = Field(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9._ -]+$")
    protocol: str
    schema_: str = Field(alias="schema")


class PrivacyTable(Table):
    unit: Unit = Unit.PARTY
    neighbours: Neighbours = Neighbours.REPLACE
    epsilon: float = Field(gt=0, allow_inf_nan=False)
    delta: float = Field(0.0, ge=0, lt=1)
    colluders: int = Field(1, ge=0)
    dropouts: int = Field(0, ge=0)

    @property
    def loss(self) -> Loss:
        return loss_of(self.epsilon, self.delta)

    def completed(self, defaults: Mapping[str, Any]) -> PrivacyTable:
        """With a method's own defaults for keys that the file leaves out; these still count as defaults."""
        own = {key: value for key, value in defaults.items() if key not in self.model_fields_set}
        made = PrivacyTable.model_validate({**self.model_dump(), **own})
        return self if not own else PrivacyTable.model_construct(self.model_fields_set, **dict(made))

    def split_budget(self, evaluation: EvaluationTable | None) -> tuple[Loss, Evaluation | None]:
        """What the method may lose, and the terms of its evaluation."""
        if evaluation is None:
            return self.loss, None
        return split_budget(self.loss, self.unit, self.neighbours, share=evaluation.share, budget=evaluation.budget)


class EvaluationTable(Table):
    """Records set aside to measure the model on, under the study's own guarantee."""

    share: float | None = None
    budget: float | None = None


class PartyTable(Table):
    columns: list[str] | None = None
    role: str | None = None
    keys: dict[str, str] | None = None


class CoordinatorTable(Table):
    """Who asks: its public keys, so that no site answers anybody else."""

    keys: dict[str, str] | None = None


class ModelTable(Table):
    """A party's own model: a dotted name, or several of a pipeline, with its parameters; or a file of predictions."""

    model_config = ConfigDict(extra="allow", frozen=True)

    model: str | list[str] | None = None
    predictions: str | None = None
    soft: bool = False

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"model": value} if isinstance(value, str | list) else value

    @model_validator(mode="after")
    def _one_kind(self) -> ModelTable:
        if (self.model is None) == (self.predictions is None):
            raise ValueError("give either model, a dotted name, or predictions, a file")
        if self.predictions is not None and (self.parameters or self.soft):
            surplus = next(iter(self.parameters), "soft")
            raise ValueError(f"a file of predictions has no parameters, found {surplus}; remove it")
        return self


class SimulationTable(Table):
    """Ignored by a deployment and left out of the hash."""

    # Sources are checked by `check_data`, whose sentences show no value: one may hold a password in a wrong place.
    data: Any = None
    split: Literal["even", "by-sizes", "by-anchors", "by-column", "by-features"] = "even"
    sizes: list[float] | None = None
    column: str | None = None
    test: Any = None
    holdout: float = Field(0.2, gt=0, lt=1)
    # Which records are held out, and which party gets which: by the data and this, whatever the study says.
    split_seed: int = Field(0, ge=-(2**63), lt=2**63)
    baselines: bool = True
    grant: float | None = Field(None, gt=0)
    # Gigabytes that the encoded records of one party may take; beyond, they are read in blocks.
    memory: float = Field(1.0, gt=0)
    models: dict[str, ModelTable] | None = None
    # Without, parties run as stacks: no masks, messages or ledgers of their own.
    hosts: bool = True


class StudyFile(Table):
    study: StudyTable
    privacy: PrivacyTable
    parties: dict[str, Any]
    coordinator: CoordinatorTable = CoordinatorTable()
    evaluation: EvaluationTable | None = None
    prediction: PredictionTable | None = None
    simulation: SimulationTable = SimulationTable()


def parties_of(table: Mapping[str, Any], where: str) -> dict[str, PartyTable] | int:
    if set(table) == {"count"}:
        count = table["count"]
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise StudyError(
                f"{where}: parties.count must be a whole number of at least 1, found {count!r}", key="parties.count"
            )
        return count
    if not table:
        raise StudyError(
            f"{where}: a study needs parties; add [parties.NAME] tables, or parties.count for a simulation",
            key="parties",
        )
    with naming(where):
        check_party_names(table)
    return {name: validate(PartyTable, value, where, f"parties.{name}.") for name, value in table.items()}


def check_roles(parties: Mapping[str, PartyTable] | int, protocol: Protocol, where: str) -> None:
    """Refuse a role that the method does not have: it would be ignored."""
    known = protocol.roles
    for name, party in () if isinstance(parties, int) else parties.items():
        if party.role is not None and party.role not in known:
            has = f"has the roles {', '.join(known)}" if known else "has no roles"
            raise StudyError(
                f"{where}: parties.{name}.role = {party.role!r}: {protocol.name} {has}{hint(party.role, known)}; "
                + ("choose one of them" if known else "remove the key"),
                key=f"parties.{name}.role",
            )


def override(tables: dict[str, Any], key: str, value: Any, where: str) -> None:
    *path, leaf = key.split(".")
    if not path:
        raise StudyError(f"--set {key}: a key has a table and a name, as in privacy.epsilon=0.5")
    at = tables
    for name in path:
        at = at.setdefault(name, {})
        if not isinstance(at, dict):
            raise StudyError(f"--set {key}: {name} is no table of {where}")
    at[leaf] = value
