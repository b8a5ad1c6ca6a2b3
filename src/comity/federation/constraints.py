"""Constraints on a method's fields, declared once, on their types: the values of a `Literal`, the bounds of a number.

A study's table has the same types, so a study file is refused by the name of its key. A method made in Python is
checked against the same bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from math import inf
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Interval, MultipleOf

from comity.errors import StudyError
from comity.federation.part import Part

Positive = Annotated[float, Interval(gt=0, lt=inf)]
"""Finite, and above zero."""


@dataclass(frozen=True)
class Key:
    """The key of a field in a study's table, where it differs from the field's name."""

    name: str


@dataclass(frozen=True)
class Why:
    """The reason for a bound, shown with its refusal."""

    text: str


@dataclass(frozen=True)
class Rule:
    field: str
    key: str
    why: str = ""
    values: tuple[Any, ...] = ()
    within: Interval | None = None
    even: bool = False

    def broken_by(self, value: Any) -> str | None:
        """What the value must be instead; None if it is valid."""
        if self.values:
            return None if value in self.values else f"must be one of {', '.join(map(str, self.values))}"
        if self.within is not None and not _is_within(value, self.within):
            return _describe_bounds(self.within, self.even)
        return _describe_bounds(self.within, True) if self.even and value % 2 else None


def check_fields(method: Part) -> None:
    """Refuse a method with a field that its type rules out. None is not checked here."""
    kind: Any = type(method)
    for rule in _rules(kind):
        value = getattr(method, rule.field)
        violation = None if value is None else rule.broken_by(value)
        if violation is not None:
            key = f"{method.name}.{rule.key}"
            raise StudyError(f"{key} {violation}, found {value!r}{rule.why}", key=key)


@cache
def _rules(kind: Any) -> tuple[Rule, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(rule for field in fields(kind) for rule in _read_rules(field.name, hints[field.name]))


def _read_rules(field: str, hint: Any) -> Iterator[Rule]:
    if get_origin(hint) in (Union, UnionType):
        several = [one for one in get_args(hint) if one is not NoneType]
        if len(several) == 1:
            yield from _read_rules(field, several[0])
        return
    metadata: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *rest = get_args(hint)
        metadata = tuple(rest)
    key = next((one.name for one in metadata if isinstance(one, Key)), field)
    why = next((f": {one.text}" for one in metadata if isinstance(one, Why)), "")
    if get_origin(hint) is Literal:
        yield Rule(field, key, why, values=get_args(hint))
    within = next((one for one in metadata if isinstance(one, Interval)), None)
    if within is not None:
        yield Rule(field, key, why, within=within, even=any(one == MultipleOf(2) for one in metadata))


def _is_within(value: Any, within: Interval) -> bool:
    """Whether the value lies within; NaN does not."""
    above = (within.gt is None or value > within.gt) and (within.ge is None or value >= within.ge)
    return bool(above and (within.lt is None or value < within.lt) and (within.le is None or value <= within.le))


def _describe_bounds(within: Interval | None, even: bool) -> str:
    assert within is not None
    low = within.ge if within.gt is None else within.gt
    high = within.le if within.lt is None else within.lt
    if even:
        return f"must be an even number from {low} to {high}"
    if high not in (None, inf):
        return f"must lie between {low} and {high}"
    return "must be positive" if within.gt == 0 else f"must be at least {low}"
