"""The tables of a study file: what each key may hold, and what it is where the file says nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from comity.errors import BudgetExceeded, ComityError, StudyError
from comity.federation.declare.about import About
from comity.federation.declare.consortium import check_party_names
from comity.federation.declare.evaluation import Evaluation, split_budget
from comity.federation.protocol import Protocol
from comity.methods.tables import Table, hint, validate
from comity.privacy.loss import Loss, loss_of
from comity.privacy.unit import Neighbours, Unit


@contextmanager
def prefix_errors(where: str) -> Iterator[None]:
    """Begin errors with the file that they are about, once; they keep their class, code and key."""
    try:
        yield
    except BudgetExceeded:
        raise
    except ComityError as error:
        if str(error).startswith(where):
            raise
        raise type(error)(f"{where}: {error}", code=error.code, key=error.key) from error


_ONE_LINE = r"^[^\r\n]+$"


class StudyTable(Table):
    name: str = Field(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9._ -]+$")
    protocol: str
    schema_: str = Field(alias="schema")
    purpose: str | None = Field(None, max_length=500, pattern=_ONE_LINE)
    contact: str | None = Field(None, max_length=200, pattern=_ONE_LINE)
    legal_basis: str | None = Field(None, max_length=500, pattern=_ONE_LINE)
    retention: str | None = Field(None, max_length=200, pattern=_ONE_LINE)

    @property
    def about(self) -> About:
        return About(self.purpose or "", self.contact or "", self.legal_basis or "", self.retention or "")


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

    def with_defaults(self, defaults: Mapping[str, Any]) -> PrivacyTable:
        """This table with a method's defaults for keys that the file leaves out; they still count as defaults."""
        own = {key: value for key, value in defaults.items() if key not in self.model_fields_set}
        completed = PrivacyTable.model_validate({**self.model_dump(), **own})
        return self if not own else PrivacyTable.model_construct(self.model_fields_set, **dict(completed))

    def split_budget(self, evaluation: EvaluationTable | None) -> tuple[Loss, Evaluation | None]:
        """What the method may lose, and the terms of its evaluation."""
        if evaluation is None:
            return self.loss, None
        return split_budget(self.loss, self.unit, self.neighbours, share=evaluation.share, budget=evaluation.budget)


class EvaluationTable(Table):
    """Records to hold out and measure the model on, under the study's guarantee."""

    share: float | None = None
    budget: float | None = None


def _leave_out_relay_key(keys: dict[str, str]) -> dict[str, str]:
    """A member's public block can be pasted as it is. The study is about who signs and who can read, over any relay, so
    the relay key is no part of what is agreed, and not of the hash."""
    return {name: text for name, text in keys.items() if name != "relay"}


PinnedKeys = Annotated[dict[str, str], AfterValidator(_leave_out_relay_key)]


class PartyTable(Table):
    columns: list[str] | None = None
    role: str | None = None
    keys: PinnedKeys | None = None


class CoordinatorTable(Table):
    """The coordinator's public keys: a site answers nobody else."""

    keys: PinnedKeys | None = None


class ModelTable(Table):
    """A party's local model: a dotted name, or several of a pipeline, with its parameters; or a file of predictions."""

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
    """How the study is simulated: ignored by a deployment and left out of the hash."""

    # Sources are checked by `check_sources`, whose sentences show no value: one may be a password in the wrong place.
    data: Any = None
    split: Literal["even", "by-sizes", "by-anchors", "by-column", "by-features"] = "even"
    sizes: list[float] | None = None
    column: str | None = None
    test: Any = None
    holdout: float = Field(0.2, gt=0, lt=1)
    # Decides with the data alone which records are held out and which party gets which.
    split_seed: int = Field(0, ge=-(2**63), lt=2**63)
    baselines: bool = True
    # Columns of the schema, and "party": the error of each of their subgroups, with intervals.
    evaluate_by: list[str] = Field(default_factory=list)
    grant: float | None = Field(None, gt=0)
    # Gigabytes that the encoded records of one party may take; larger ones are read in blocks.
    memory: float = Field(1.0, gt=0)
    models: dict[str, ModelTable] | None = None
    # False runs parties as stacks: without masks, messages and a ledger each.
    hosts: bool = True


class PredictionTable(Table):
    """Which released model is applied, to how many new records at most, and who beside the coordinator gets scores."""

    of: str = Field(pattern=r"^[0-9a-f]{64}$")
    run: str = Field(min_length=1, max_length=80)
    weights: str = Field(min_length=1)
    records: int = Field(ge=1)
    receiver: str | None = None


class StudyFile(Table):
    study: StudyTable
    privacy: PrivacyTable
    parties: dict[str, Any]
    coordinator: CoordinatorTable = CoordinatorTable()
    evaluation: EvaluationTable | None = None
    prediction: PredictionTable | None = None
    simulation: SimulationTable = SimulationTable()


# Reading the tables.


def read_parties(table: Mapping[str, Any], where: str) -> dict[str, PartyTable] | int:
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
    with prefix_errors(where):
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


def apply_override(tables: dict[str, Any], key: str, value: Any, where: str) -> None:
    *path, leaf = key.split(".")
    if not path:
        raise StudyError(f"--set {key}: a key has a table and a name, as in privacy.epsilon=0.5")
    at = tables
    for name in path:
        at = at.setdefault(name, {})
        if not isinstance(at, dict):
            raise StudyError(f"--set {key}: {name} is no table of {where}")
    at[leaf] = value


# A table with one of these keys names one source, unless they are the names of the parties.
_SOURCE_KEYS = {"source", "path", "url", "query", "table"}


def is_one_source(data: Any, parties: Iterable[str]) -> bool:
    """Whether `data` names one source for all parties."""
    return not isinstance(data, Mapping) or (set(data) != set(parties) and bool(_SOURCE_KEYS & set(data)))


def check_sources(data: Any, test: Any, parties: Iterable[str], where: str) -> None:
    """Check that every source of `[simulation]` is of a known form. No file is opened: a plan needs none. No sentence
    shows a value of the table: one may be a password in the wrong place."""
    from comity.data.tables.sources import check_table

    for key, value in _sources(data, test, parties):
        if isinstance(value, Mapping):
            check_table(value, f"{where}: {key}")
        elif not isinstance(value, str):
            raise StudyError(
                f"{where}: {key}: expected a file or a table with source = ..., found {type(value).__name__}; write it "
                "in quotes, or as a table",
                key=key,
            )


def _sources(data: Any, test: Any, parties: Iterable[str]) -> Iterator[tuple[str, Any]]:
    if data is not None and is_one_source(data, parties):
        yield "simulation.data", data
    elif data is not None:
        yield from ((f"simulation.data.{name}", value) for name, value in data.items())
    if test is not None:
        yield "simulation.test", test
