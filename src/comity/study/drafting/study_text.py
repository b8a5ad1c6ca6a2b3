"""The study file of a draft: every key with the reason for its value, in the method's own defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from comity.data.schemas.schema import to_toml_value, toml_key

MAX_DELTA = 1e-5
COUNTED_FROM = 21
"""More parties than this are counted, and not listed one by one."""


@dataclass(frozen=True, kw_only=True)
class StudyText:
    """What a study file says. `records` are those of each party; `columns` are empty where all hold whole records."""

    name: str
    protocol: str
    records: Mapping[str, int]
    data: Mapping[str, Any] | str
    split_column: str | None = None
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    consumer: str | None = None
    aligned: bool = False

    def write(self) -> str:
        blocks = [self._study(), self._privacy(), *self._method(), self._parties(), *self._simulation()]
        return "\n\n".join(blocks) + "\n"

    @property
    def protects_parties(self) -> bool:
        return self.protocol == "softlabel"

    @property
    def units(self) -> int:
        """How many records, or parties where these are protected, the study declares."""
        if self.protects_parties:
            return len(self.records)
        if self.aligned:
            return max(map(round_figure, self.records.values()))
        return sum(map(round_figure, self.records.values()))

    @property
    def _counts_parties(self) -> bool:
        """Whether parties are counted. Those of a summary have roles, and those of columns their columns."""
        return len(self.records) >= COUNTED_FROM and not self.columns and self.protocol != "summary"

    def _study(self) -> str:
        return _table(
            "study",
            [
                ("name", self.name, ""),
                ("protocol", self.protocol, _ABOUT[self.protocol]),
                ("schema", "schema.toml", "the public description of a record; its bounds are drafts to replace"),
            ],
            head="# Drafted by comity new --data. `comity plan study.toml` shows what it would release.\n",
        )

    def _privacy(self) -> str:
        unit, neighbours = "record", "replace"
        if self.protects_parties:
            unit, who = "party", "who is protected: a whole party, with all of its records"
        else:
            who = "who is protected: one record" + (", at all parties together" if self.columns else "")
        known = "how many records there are is public"
        if self.protocol == "synthetic" and not self.columns:
            neighbours, known = "add-remove", "how many records there are is protected too"
        delta = delta_for(self.units)
        counted = "parties" if self.protects_parties else "records"
        return _table(
            "privacy",
            [
                ("unit", unit, who),
                ("neighbours", neighbours, known),
                ("epsilon", 1.0, "the loss of each unit; smaller is more private and less exact"),
                ("delta", delta, f"far below 1 in {self.units} declared {counted}: at most a tenth of it"),
            ],
        )

    def _method(self) -> list[str]:
        sizes = {party: round_figure(count) for party, count in self.records.items()}
        typical = round_figure(sorted(self.records.values())[len(self.records) // 2])
        if self.protocol == "averaging" and self._counts_parties:
            return [_table("averaging", [("sizes", typical, "how many records a party has: a round, public figure")])]
        if self.protocol == "averaging":
            head = (
                "# How many records each party has, rounded: public figures. Replace them by those that may be known.\n"
            )
            return [
                _table("averaging.sizes", [(toml_key(party), size, "") for party, size in sizes.items()], head=head)
            ]
        if self.protocol == "summary":
            owned = sum(size for party, size in sizes.items() if party != self.consumer)
            head = (
                "# How many records each party has, rounded: public figures, and a cap on what an owner is asked for.\n"
            )
            return [
                _table(
                    "summary",
                    [
                        ("records", min(100, max(1, owned // 4)), "how many are chosen in all"),
                        ("deliver", "records", 'chosen records leave; "weights" where none may'),
                    ],
                ),
                _table("summary.sizes", [(toml_key(party), size, "") for party, size in sizes.items()], head=head),
            ]
        if self.protocol == "synthetic" and not self.columns:
            rows = round_figure(sum(self.records.values()))
            return [
                _table("synthetic", [("rows", rows, "about how many records there are in all: a round, public figure")])
            ]
        if self.protocol == "softlabel":
            return [
                _table(
                    "softlabel",
                    [
                        ("auxiliary", "public.parquet", "public records without labels; part of the study's hash"),
                        ("sizes", typical, "how many records a party has: declared, never counted"),
                    ],
                )
            ]
        return []

    def _parties(self) -> str:
        if self._counts_parties:
            return _table("parties", [("count", len(self.records), "in a deployment each has a [parties.NAME] table")])
        return "\n".join(self._party(name) for name in self.records)

    def _party(self, name: str) -> str:
        lines = [f"[parties.{name}]"]
        if self.columns:
            lines.append(f"columns = {to_toml_value(list(self.columns[name]))}")
        if self.protocol == "summary":
            lines.append(f'role = "{"consumer" if name == self.consumer else "owner"}"')
        return "\n".join(lines)

    def _simulation(self) -> list[str]:
        head = (
            "# Where a simulation finds the records. In a deployment each owner's site file has these keys instead.\n"
        )
        keys: list[tuple[str, Any, str]] = []
        if self.split_column is not None:
            keys = [("split", "by-column", ""), ("column", self.split_column, "each of its values is a party")]
        keys += [("baselines", True, "compare with a constant, with own data alone, with everything pooled")]
        if isinstance(self.data, str):
            return [_table("simulation", [("data", self.data, ""), *keys], head=head)]
        one = self.split_column is not None
        tables = {"data": self.data} if one else {f"data.{party}": table for party, table in self.data.items()}
        return [_table("simulation", keys, head=head), *(_source(name, table) for name, table in tables.items())]


_ABOUT = {
    "averaging": "one model from noisy sums over the records of all parties",
    "vertical": "one regression over columns at different parties",
    "synthetic": "one generated dataset from noisy counts",
    "softlabel": "parties learn locally and vote on public records",
    "summary": "owners' records that together look like the consumer's",
}


def delta_for(units: int) -> float:
    """The largest power of ten below a tenth of one in so many units, and at most 1e-5."""
    return min(MAX_DELTA, float(f"1e-{len(str(units)) + 1}"))


def round_figure(count: int) -> int:
    """A count with two digits that are not zero."""
    scale: int = 10 ** max(0, len(str(count)) - 2)
    return max(1, round(count / scale) * scale)


def _source(name: str, table: Any) -> str:
    keys = {"path": table} if isinstance(table, str) else table
    return _table(f"simulation.{name}", [(key, value, _SOURCE.get(key, "")) for key, value in keys.items()])


_SOURCE = {
    "rename": "the file's name = the schema's name",
    "missing": "these stand for no value",
    "recode": "the file's value = the schema's value; \"\" is none",
    "format": "how the file writes dates and numbers",
    "unit": "the factor that turns the file's numbers into the schema's",
    "complete": "records without a value there are left out",
}


def _table(name: str, keys: Sequence[tuple[str, Any, str]], head: str = "") -> str:
    lines = [(f"{key} = {_value(value)}", about) for key, value, about in keys]
    width = max((len(line) for line, about in lines if about and len(line) < 60), default=0)
    written = [line if not about else f"{line.ljust(width)}  # {about}" for line, about in lines]
    return head + "\n".join([f"[{name}]", *written])


def _value(value: Any) -> str:
    return repr(value) if isinstance(value, float) else to_toml_value(value)
