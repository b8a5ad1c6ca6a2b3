"""A method as its users meet it: one class with every option, made from a schema.

`comity.Averaging(schema, sizes=400)` is what the table `[averaging]` of a study becomes, and what Python plans and
simulates. Each option is declared once, as a field: type, bounds, default, help, and where it applies
(`Annotated[int, Only(variant="published")]`). An option that would be ignored is refused, because its author believes
that it does something. What runs is the protocol that `build` makes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import ConfigDict, PrivateAttr, ValidationError, model_validator

from comity.data import Schema
from comity.errors import StudyError
from comity.federation.protocol import Protocol
from comity.methods.constants import Constant, Constants
from comity.methods.tables import TypedTable, describe_first_error
from comity.representation import html_table, in_brief, short_repr

if TYPE_CHECKING:
    import pandas as pd

    from comity.federation.plan import Plan
    from comity.study.results.result import Result
    from comity.study.study import Study

ABSENT = "absent"
"""The code of the DataError about a file that is not there, as opposed to one that can't be read."""


@dataclass(frozen=True)
class Setting:
    """The public facts that a method builds its protocol from.

    `where` names the study in errors, `read` opens a file that an option names (by its name and that option), `columns`
    says which columns each party holds, and `privacy` holds values of [privacy].
    """

    __repr__ = short_repr

    schema: Schema
    where: str
    read: Callable[[str, str], pd.DataFrame]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    privacy: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pure(self) -> bool:
        """Whether the study grants no delta."""
        return self.privacy.get("delta") == 0


class Only:
    """Marks an option that applies only under some values of others; `why` explains that to users who set it
    elsewhere."""

    def __init__(self, *, why: str = "", **needs: str | tuple[str, ...]) -> None:
        self.why = why
        self.needs = {key: (values,) if isinstance(values, str) else values for key, values in needs.items()}

    def failing(self, values: Mapping[str, Any]) -> str | None:
        """The first option whose value rules this one out."""
        return next((key for key, allowed in self.needs.items() if values[key] not in allowed), None)


class Method(TypedTable):
    """The options of one method, over the columns of one schema. Subclasses declare each option as a field.

        method = comity.Averaging(schema, sizes=400)
        print(method.plan(["north", "south"], epsilon=1, delta=1e-6))
        result = method.simulate({"north": north, "south": south}, epsilon=1, delta=1e-6)

    `columns` says which columns each party holds, where parties hold different columns of the same people. Options that
    name a file in a study take a DataFrame here.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: ClassVar[str] = ""
    """The name of its table in a study."""
    by_columns: ClassVar[bool] = False
    """Whether parties may hold different columns of the same people."""
    counts_sizes: ClassVar[bool] = False
    """Whether a run needs `sizes`, the declared numbers of records; a simulation counts them where none are given."""
    renamed: ClassVar[Mapping[str, str]] = {}
    """Options by the name that studies used before. A study may still use it, and the hash of a study always does."""
    facts: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Facts of the study that options may depend on, by name: each value in words, for refusals. `resolved` has their
    values."""
    paper: ClassVar[Mapping[str, Constant]] = {}
    """What the paper fixes, by name. Under an option's name it is that option's default where variant = "published"."""
    variant_privacy: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Values that keys of [privacy] must have, by variant. The protocol refuses others too; listed here, a study with
    another variant gets one error about all of them."""

    _schema: Schema | None = PrivateAttr(default=None)
    _columns: dict[str, tuple[str, ...]] = PrivateAttr(default_factory=dict)
    _frames: dict[str, Any] = PrivateAttr(default_factory=dict)
    _notices: tuple[str, ...] = PrivateAttr(default=())

    def __init__(
        self, schema: Schema | None = None, /, *, columns: Mapping[str, Sequence[str]] | None = None, **options: Any
    ) -> None:
        if schema is None and columns is not None:
            # A table of a study has no columns, which [parties] declares: refused as any unknown key.
            options["columns"] = columns
        frames = {key: value for key, value in options.items() if hasattr(value, "columns") and hasattr(value, "iloc")}
        try:
            # A table given in Python has no file; its option holds a name that says so.
            super().__init__(**{**options, **{key: f"<{key}>" for key in frames}})
        except ValidationError as error:
            if schema is None:
                raise
            raise describe_first_error(error, type(self), type(self).__name__, f"{self.table}.") from None
        self._schema, self._frames = schema, frames
        self._columns = {party: tuple(names) for party, names in (columns or {}).items()}

    @model_validator(mode="after")
    def _take_constants_of_paper(self) -> Self:
        if getattr(self, "variant", "") == "published":
            for key, constant in self.paper.items():
                if key in type(self).model_fields and key not in self.model_fields_set:
                    # Not an assignment: the option stays one that nobody set.
                    self.__dict__[key] = constant.value
        return self

    def __repr__(self) -> str:
        options = ", ".join(
            f"{key}={in_brief(self._frames.get(key, getattr(self, key)))}"
            for key in type(self).model_fields
            if key in self.model_fields_set
        )
        return f"{type(self).__name__}({', '.join(filter(None, ['schema' if self._schema else '', options]))})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """Its options, for a notebook; those that were left to their defaults are marked."""
        rows = [
            (
                key,
                in_brief(self._frames.get(key, getattr(self, key))),
                "" if key in self.model_fields_set else "default",
            )
            for key in type(self).model_fields
        ]
        return html_table(type(self).__name__, ("option", "value", ""), rows)

    # What its users call.

    def study(self, parties: Sequence[str], *, epsilon: float, delta: float = 0.0, **terms: Any) -> Study:
        """The study of these parties with this method: what they would agree on, without any records.

        `terms` are further keys of [privacy] (`unit`, `neighbours`, `colluders`, `dropouts`), `roles` (the parties of
        each role that the method has), `evaluation` (records to hold out for a measurement under privacy; {} for the
        defaults) and `name`. What is left out is the method's own default.
        """
        # The one place where a method imports studies: everything below runs without them.
        from comity.study.study import Study

        return Study.of(self, parties, epsilon=epsilon, delta=delta, **terms)

    def plan(self, parties: Sequence[str], *, epsilon: float, delta: float = 0.0, **terms: Any) -> Plan:
        """What a run would release, to whom and at what loss. No records are read. `terms` are those of `study`."""
        return self.study(parties, epsilon=epsilon, delta=delta, **terms).plan()

    def simulate(
        self,
        frames: Mapping[str, pd.DataFrame],
        *,
        epsilon: float,
        delta: float = 0.0,
        seed: int | None = None,
        test: pd.DataFrame | None = None,
        models: Any = None,
        repeats: int = 0,
        evaluate_by: Sequence[str] = (),
        **terms: Any,
    ) -> Result:
        """Run the method over these parties' records on this machine.

        Without a seed the noise is drawn as in a release. With one the run can be repeated and protects nobody; the
        result says so. On `test` records, which no party holds, the result is measured; `repeats` more runs with fresh
        noise tell how far the figures vary. `evaluate_by` names columns whose subgroups are compared on them, in
        `result.subgroups`; "party" does so by a column `party` of `test`. `models` are local models for methods that
        take them. Where `sizes` are needed and not given they are counted from the frames, and the result says so.
        `terms` are those of `study`.
        """
        import comity

        study = self.with_counted_sizes(frames).study(list(frames), epsilon=epsilon, delta=delta, **terms)
        return comity.simulate(
            study, frames=frames, seed=seed, test=test, models=models, repeats=repeats, evaluate_by=evaluate_by
        )

    def with_counted_sizes(self, frames: Mapping[str, pd.DataFrame]) -> Self:
        """The method with the frames' own sizes, where it needs sizes and has none."""
        if not self.counts_sizes or getattr(self, "sizes", None):
            return self
        only, variant = self._only("sizes"), getattr(self, "variant", "default")
        if only is not None and variant not in only.needs.get("variant", (variant,)):
            return self
        method = self.model_copy(update={"sizes": self.count_sizes(frames)})
        method._notices = (
            f"{self.table}.sizes was counted from the frames, exactly: declare sizes for a plan or a deployment",
        )
        return method

    def count_sizes(self, frames: Mapping[str, pd.DataFrame]) -> dict[str, int] | int:
        """What `sizes` would declare of these frames."""
        return {party: len(frame) for party, frame in frames.items()}

    @property
    def constants(self) -> Constants:
        """What the paper fixes, with the values in use; empty unless `variant="published"`."""
        if getattr(self, "variant", "") != "published":
            return Constants()
        return Constants(
            {
                name: replace(one, in_use=getattr(self, name)) if name in type(self).model_fields else one
                for name, one in self.paper.items()
            }
        )

    # What a study asks.

    @property
    def given_schema(self) -> Schema:
        if self._schema is None:
            name = type(self).__name__
            raise StudyError(f"{name} was made without a schema; give it first, as in {name}(schema)")
        return self._schema

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know about options that were not given."""
        return self._notices

    @property
    def sizes_were_counted(self) -> bool:
        """Whether `sizes` hold exact counts of records instead of declared figures."""
        return bool(self._notices)

    @property
    def given_columns(self) -> Mapping[str, tuple[str, ...]]:
        return self._columns

    def read_given(self, name: str, key: str) -> pd.DataFrame:
        """The table that an option was given in Python."""
        option = key.rpartition(".")[2]
        if option not in self._frames:
            raise StudyError(f"{key} must be a DataFrame where the method is made in Python, found {name!r}", key=key)
        frame: pd.DataFrame = self._frames[option]
        return frame

    def digest_given(self, key: str) -> str:
        """The content of a table that an option was given in Python, for the hash of its study."""
        return sha256(self.read_given("", key).to_csv(index=False).encode()).hexdigest()

    def options_for_hash(self) -> dict[str, Any]:
        """Every option as the hash of a study has it: by its first name."""
        return {self.renamed.get(key, key): value for key, value in self.model_dump(mode="json").items()}

    @classmethod
    def rename_old_options(cls, table: Mapping[str, Any], where: str) -> tuple[dict[str, Any], tuple[str, ...]]:
        """A table of a study with options by their present names, and a notice for each that was renamed."""
        read, notices = dict(table), []
        for new, old in cls.renamed.items():
            if old not in read or old in cls.model_fields:
                continue
            if new in read:
                raise StudyError(
                    f"{where}: {cls.table}.{old} is the earlier name of {cls.table}.{new}; remove one of them",
                    key=f"{cls.table}.{old}",
                )
            read[new] = read.pop(old)
            notices.append(f"{cls.table}.{old} is now called {cls.table}.{new}; the study means the same")
        return read, tuple(notices)

    def privacy(self, setting: Setting) -> Mapping[str, Any]:
        """Keys of [privacy] whose default is the method's own; delta is always the study's."""
        needed = self.variant_privacy.get(getattr(self, "variant", ""), {})
        return {key: value for key, value in needed.items() if key != "delta"}

    def files(self) -> Mapping[str, str]:
        """Public files whose content belongs to the study's hash, by the key that names them."""
        return {}

    def resolve_options(self, setting: Setting) -> dict[str, Any]:
        """Every value by its key; where one is chosen by public figures, what it comes to in this study."""
        return {key: getattr(self, key) for key in type(self).model_fields}

    def own_keys(self, setting: Setting) -> tuple[str, ...]:
        """The keys that mean something under these values; all others would be ignored."""
        values = self.resolve_options(setting)
        return tuple(
            key for key in type(self).model_fields if (only := self._only(key)) is None or only.failing(values) is None
        )

    def build(self, setting: Setting) -> Protocol:
        """The protocol; a key that it would ignore is refused."""
        self.check_target(setting)
        values = self.resolve_options(setting)
        self._check_variant(setting, values)
        for key in type(self).model_fields:
            only = self._only(key)
            ruled_out = None if only is None else only.failing(values)
            if only is None or ruled_out is None or key not in self.model_fields_set:
                continue
            why = f": {only.why}" if only.why else ""
            raise StudyError(
                f"{setting.where}: {self.table}.{key} belongs to {self._ruled_out(ruled_out, only, values)}{why}; "
                "leave one of them out",
                key=f"{self.table}.{key}",
            )
        return self.make_protocol(setting)

    def check_target(self, setting: Setting) -> None:
        """Refuse a schema whose target the method or its variant can't learn, whatever the other keys are."""

    def _check_variant(self, setting: Setting, values: Mapping[str, Any]) -> None:
        """Refuse a variant that needs several changes, and name all of them: a study that makes them runs."""
        variant = values.get("variant")
        surplus = [
            f"{self.table}.{key}"
            for key in type(self).model_fields
            if key in self.model_fields_set
            and (only := self._only(key)) is not None
            and variant not in only.needs.get("variant", (variant,))
        ]
        needed = {
            f"privacy.{key}": value
            for key, value in self.variant_privacy.get(str(variant), {}).items()
            if key in setting.privacy and setting.privacy[key] != value
        }
        if len(surplus) + len(needed) < 2:
            return
        remedy = [f"remove {_listed(surplus)}"] if surplus else []
        remedy += [f"set {_listed([f'{key} to {value}' for key, value in needed.items()])}"] if needed else []
        marks = [self._only(key.partition(".")[2]) for key in surplus]
        reasons = dict.fromkeys(only.why for only in marks if only is not None and only.why)
        because = f" ({'; '.join(reasons)})" if reasons else ""
        raise StudyError(
            f'{setting.where}: {self.table}.variant = "{variant}" does not go with other keys of this study{because}; '
            f"{', and '.join(remedy)}, or leave {self.table}.variant out",
            key=(surplus or list(needed))[0],
        )

    def _ruled_out(self, by: str, only: Only, values: Mapping[str, Any]) -> str:
        """What a key would need instead of what the study has."""
        if by in self.facts:
            words = self.facts[by]
            return f"{' or '.join(words[value] for value in only.needs[by])}, found {words[values[by]]}"
        written = getattr(self, by)
        found = f'"{written}"' if written == values[by] else f'"{written}", here "{values[by]}"'
        allowed = " or ".join(f'"{value}"' for value in only.needs[by])
        return f"{self.table}.{by} = {allowed}, found {found}"

    def declared_records(self, party: str) -> int | None:
        """How many records the study says that a party has; None where it says nothing."""
        return None

    @abstractmethod
    def make_protocol(self, setting: Setting) -> Protocol:
        """The protocol, from keys that all have a meaning."""

    @classmethod
    def _only(cls, key: str) -> Only | None:
        return next((one for one in cls.model_fields[key].metadata if isinstance(one, Only)), None)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
