"""The schema: the public description of a record, agreed by all parties before any data are read."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from comity.data.schemas.columns import Bounded, Categorical, Classes, Column, Date, Numeric, Ordinal, Target
from comity.data.schemas.impossible import MAX_RULES, Impossible, check_rule
from comity.errors import SchemaError, did_you_mean
from comity.representation import html_table, short_repr
from comity.untrusted.toml import BadToml, read_tables

KINDS: dict[str, type[Column]] = {
    "numeric": Numeric,
    "categorical": Categorical,
    "ordinal": Ordinal,
    "date": Date,
}


# Columns that a notebook shows.
_SHOWN = 40


@dataclass(frozen=True)
class Schema:
    """Feature columns in order, an optional target, an optional column that identifies the person of a record, and
    what no record can be (`impossible`).

        schema = comity.Schema.load("schema.toml")
        schema.to_toml()

    Sensitivities rest on bounds, categories and widths, which all come from here: two parties with the same `digest`
    encode alike and have the same norm bounds.
    """

    __repr__ = short_repr

    def _repr_html_(self) -> str:
        """Its columns, for a notebook."""
        ends = [] if self.target is None else [self.target]
        rows = [(one.name, type(one).__name__.lower(), _bounds(one)) for one in (*self.columns, *ends)]
        below = [] if self.target is None else [f"target: {self.target.name}"]
        below += [] if self.identifier is None else [f"identifier: {self.identifier}"]
        return html_table(f"Schema of {len(self.columns)} columns", ("column", "kind", "values"), rows[:_SHOWN], below)

    columns: tuple[Column, ...]
    target: Target | None = None
    identifier: str | None = None
    impossible: tuple[Impossible, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        for column in self.columns:
            if not isinstance(column, Column):
                raise SchemaError(
                    f"columns: expected Numeric, Categorical, Ordinal or Date, found {column!r}.", key="columns"
                )
        if self.identifier is not None and (not isinstance(self.identifier, str) or not self.identifier.strip()):
            raise SchemaError(
                f"identifier.name: expected a column's name, found {self.identifier!r}; "
                "name it or leave the table out.",
                key="identifier.name",
            )
        if not self.columns and self.target is None:
            raise SchemaError(
                "columns: expected at least one column, found none; add a table such as "
                "[columns.age] with kind, low and high.",
                key="columns",
            )
        seen: set[str] = set()
        for name in (*self.names, *self._target_name, *((self.identifier,) if self.identifier else ())):
            if name in seen:
                raise SchemaError(
                    f"columns.{name}: expected each name once, found {name!r} twice among columns, "
                    "target and identifier; a target or identifier is no feature, so remove one of the two.",
                    key=f"columns.{name}",
                )
            seen.add(name)
        leaders = {column.name: column.follows for column in self.columns}
        for name, leader in leaders.items():
            if leader is not None and (leader == name or leaders.get(leader, leader) is not None):
                raise SchemaError(
                    f"columns.{name}.follows: expected another feature column that follows none itself, found "
                    f"{leader!r}; name the column that determines this one.",
                    key=f"columns.{name}.follows",
                )
        if self.impossible:
            object.__setattr__(self, "impossible", self._check_rules())

    def _check_rules(self) -> tuple[Impossible, ...]:
        rules = tuple(self.impossible)
        if len(rules) > MAX_RULES:
            raise SchemaError(
                f"impossible: expected at most {MAX_RULES} tables, found {len(rules)}; put values of one column that "
                "the same values exclude into one table.",
                key="impossible",
            )
        known: dict[str, Column | Target] = {column.name: column for column in self.columns}
        if self.target is not None:
            known[self.target.name] = self.target
        return tuple(check_rule(rule, known, place) for place, rule in enumerate(rules))

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a TOML file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SchemaError(
                f"{path}: the schema can't be read ({error}); give the path of a TOML file, or draft one "
                "with `comity schema draft` from a public sample."
            ) from error
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, where: str = "schema") -> Schema:
        """Read TOML text; `where` names its origin in errors."""
        try:
            return _parse_schema(read_tables(text))
        except BadToml as error:
            raise SchemaError(f"{where}: not valid TOML ({error}); correct that line.") from error
        except SchemaError as error:
            raise SchemaError(f"{where}: {error}", key=error.key) from error

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the feature columns, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def read_names(self) -> tuple[str, ...]:
        """The columns of a source that are read: features, target and identifier."""
        return (*self.names, *self._target_name, *(() if self.identifier is None else (self.identifier,)))

    @property
    def _target_name(self) -> tuple[str, ...]:
        return () if self.target is None else (self.target.name,)

    @property
    def drafts(self) -> tuple[str, ...]:
        """Names of the columns, and of the target, whose bounds or values are still a draft."""
        drafted = tuple(column.name for column in self.columns if column.draft)
        return (*drafted, *(self._target_name if self.target is not None and self.target.draft else ()))

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(f"columns.{name}: no such column{did_you_mean(name, self.names)}", key=f"columns.{name}")

    def columns_matching(self, patterns: str | Iterable[str]) -> tuple[str, ...]:
        """Names of the features and the target that match any of the globs, in the schema's order.

        A glob that matches nothing is an error: it is most likely a misspelling.
        """
        globs = (patterns,) if isinstance(patterns, str) else tuple(patterns)
        names = (*self.names, *self._target_name)
        for glob in globs:
            if not any(fnmatchcase(name, glob) for name in names):
                raise SchemaError(f"columns: {glob!r} matches no column{did_you_mean(glob, names)}", key="columns")
        return tuple(name for name in names if any(fnmatchcase(name, glob) for glob in globs))

    def restrict(self, patterns: str | Iterable[str], *, target: bool = False) -> Schema:
        """The part of the schema that one party holds: matching columns, and the target if it matches or is asked for.

        The identifier stays: parties align their records by it.
        """
        names = set(self.columns_matching(patterns))
        holds_target = self.target is not None and (target or self.target.name in names)
        # This party can't tell whether a column follows one that another party holds.
        columns = tuple(
            column if column.follows in names else replace(column, follows=None)
            for column in self.columns
            if column.name in names
        )
        held = names | ({self.target.name} if holds_target and self.target is not None else set())
        # A rule about columns of several parties says nothing about one party's columns alone.
        rules = tuple(rule for rule in self.impossible if held.issuperset(rule.names))
        return Schema(columns, self.target if holds_target else None, self.identifier, rules)

    def to_toml(self) -> str:
        """TOML text that parses to an equal schema."""
        tables = self._tables()
        columns = {f"[columns.{toml_key(name)}]": table for name, table in tables.pop("columns").items()}
        rules = tables.pop("impossible", [])
        others = {f"[{name}]": table for name, table in tables.items()}
        lines: list[str] = []
        for head, table in (*(columns | others).items(), *(("[[impossible]]", rule) for rule in rules)):
            lines += [head, *(f"{toml_key(key)} = {to_toml_value(value)}" for key, value in table.items()), ""]
        return "\n".join(lines)

    def digest(self) -> str:
        """SHA-256 of the canonical JSON form, in which columns have their order."""
        tables = self._tables()
        tables["columns"] = list(tables["columns"].items())
        text = json.dumps(
            tables, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False, default=_to_iso
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def _tables(self) -> dict[str, Any]:
        tables: dict[str, Any] = {"columns": {column.name: _column_table(column) for column in self.columns}}
        match self.target:
            case Classes(name, values):
                tables["target"] = {"name": name, "classes": list(values)}
            case Bounded(name, low, high):
                tables["target"] = {"name": name, "low": low, "high": high}
        if self.target is not None and self.target.draft:
            tables["target"]["draft"] = True
        if self.identifier is not None:
            tables["identifier"] = {"name": self.identifier}
        if self.impossible:
            tables["impossible"] = [rule.table() for rule in self.impossible]
        return tables


def _column_table(column: Column) -> dict[str, Any]:
    kind = next(word for word, type_ in KINDS.items() if type_ is type(column))
    table: dict[str, Any] = {"kind": kind}
    for field in fields(column):
        value = getattr(column, field.name)
        if field.name != "name" and (field.default is MISSING or value != field.default):
            table[field.name] = list(value) if isinstance(value, tuple) else value
    return table


def _parse_schema(tables: Mapping[str, Any]) -> Schema:
    _check_keys(tables, ("columns", "target", "identifier", "impossible"), "")
    columns = _require_table(tables.get("columns", {}), "columns")
    target = _parse_target(_require_table(tables["target"], "target")) if "target" in tables else None
    identifier: str | None = None
    if "identifier" in tables:
        table = _require_table(tables["identifier"], "identifier")
        _check_keys(table, ("name",), "identifier")
        identifier = _require_key(table, "name", "identifier")
    return Schema(
        tuple(_parse_column(name, _require_table(table, f"columns.{name}")) for name, table in columns.items()),
        target,
        identifier,
        _parse_rules(tables.get("impossible", [])),
    )


def _parse_rules(tables: Any) -> tuple[Impossible, ...]:
    if not isinstance(tables, list):
        raise SchemaError(
            f"impossible: expected tables, found {tables!r}; write each rule as [[impossible]] with a line per column.",
            key="impossible",
        )
    return tuple(Impossible.of(_require_table(table, f"impossible[{place}]")) for place, table in enumerate(tables))


def _parse_column(name: str, table: Mapping[str, Any]) -> Column:
    at = f"columns.{name}"
    kind = _require_key(table, "kind", at)
    if not isinstance(kind, str) or kind not in KINDS:
        raise SchemaError(f"{at}.kind: unknown kind {kind!r}{did_you_mean(str(kind), KINDS)}", key=f"{at}.kind")
    type_ = KINDS[kind]
    known = [field for field in fields(type_) if field.name != "name"]
    _check_keys(table, ("kind", *(field.name for field in known)), at)
    for field in known:
        if field.default is MISSING:
            _require_key(table, field.name, at)
    return type_(name, **{key: value for key, value in table.items() if key != "kind"})


def _parse_target(table: Mapping[str, Any]) -> Target:
    _check_keys(table, ("name", "classes", "low", "high", "draft"), "target")
    name, draft = _require_key(table, "name", "target"), table.get("draft", False)
    if "classes" in table:
        if "low" in table or "high" in table:
            raise SchemaError(
                "target: expected classes or low and high, found both; a class target has no bounds, so remove one.",
                key="target",
            )
        return Classes(name, table["classes"], draft)
    if "low" not in table and "high" not in table:
        raise SchemaError(
            "target.classes: expected classes, or low and high, found neither; "
            'write classes = ["no", "yes"] or low = 0 and high = 1.',
            key="target.classes",
        )
    return Bounded(name, _require_key(table, "low", "target"), _require_key(table, "high", "target"), draft)


def _require_table(value: Any, at: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SchemaError(f"{at}: expected a table, found {value!r}; write it as [{at}] with a line per key.", key=at)
    return value


def _require_key(table: Mapping[str, Any], key: str, at: str) -> Any:
    if key not in table:
        raise SchemaError(f"{at}.{key}: expected a value, found none; add {key} = ... to [{at}].", key=f"{at}.{key}")
    return table[key]


def _check_keys(table: Mapping[str, Any], known: Iterable[str], at: str) -> None:
    names = tuple(known)
    for key in table:
        if key not in names:
            full = f"{at}.{key}" if at else key
            raise SchemaError(f"{full}: unknown key {key!r}{did_you_mean(key, names)}", key=full)


def _to_iso(value: Any) -> str:
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"a schema holds no {type(value).__name__}")


def toml_key(name: str) -> str:
    """A name as TOML writes a key."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else to_toml_value(name)


def to_toml_value(value: Any) -> str:
    """A value as TOML writes it on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, except that TOML also wants DEL escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_key(key)} = {to_toml_value(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(to_toml_value, value)) + "]"
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))


def _bounds(column: Column | Target) -> str:
    """What one value may be, in a few words."""
    values = getattr(column, "values", None)
    if values is None:
        return f"{column.low} to {column.high}"  # type: ignore[union-attr]
    return ", ".join(values[:6]) + (f" and {len(values) - 6} more" if len(values) > 6 else "")
