"""What the fields of a method may hold, said once, on their types: the values of a `Literal`, the bounds of a number.

A study's table has the same types, so that a key is refused there, by its name in the file. Whoever makes a method in
Python meets the same bounds when it is made.
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
    """The key of a field in a study's table, where it is another than the field's name."""

    name: str


@dataclass(frozen=True)
class Why:
    """For whoever is refused: what the bound is for."""

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
        """What it must be instead."""
        if self.values:
            return None if value in self.values else f"must be one of {', '.join(map(str, self.values))}"
        if self.within is not None and not _inside(value, self.within):
            return _bounds(self.within, self.even)
        return _bounds(self.within, True) if self.even and value % 2 else None


def check_fields(method: Part) -> None:
    """Refuse a method of which a field holds what its type rules out; None is left to whoever allows it."""
    kind: Any = type(method)
    for rule in _rules(kind):
        value = getattr(method, rule.field)
        wrong = None if value is None else rule.broken_by(value)
        if wrong is not None:
            key = f"{method.name}.{rule.key}"
            raise StudyError(f"{key} {wrong}, found {value!r}{rule.why}", key=key)


@cache
def _rules(kind: Any) -> tuple[Rule, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(rule for field in fields(kind) for rule in _of(field.name, hints[field.name]))


def _of(field: str, hint: Any) -> Iterator[Rule]:
    if get_origin(hint) in (Union, UnionType):
        several = [one for one in get_args(hint) if one is not NoneType]
        if len(several) == 1:
            yield from _of(field, several[0])
        return
    said: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *rest = get_args(hint)
        said = tuple(rest)
    key = next((one.name for one in said if isinstance(one, Key)), field)
    why = next((f": {one.text}" for one in said if isinstance(one, Why)), "")
    if get_origin(hint) is Literal:
        yield Rule(field, key, why, values=get_args(hint))
    within = next((one for one in said if isinstance(one, Interval)), None)
    if within is not None:
        yield Rule(field, key, why, within=within, even=any(one == MultipleOf(2) for one in said))


def _inside(value: Any, within: Interval) -> bool:
    """Whether it is; what compares with nothing, as nan does, is not."""
    above = (within.gt is None or value > within.gt) and (within.ge is None or value >= within.ge)
    return bool(above and (within.lt is None or value < within.lt) and (within.le is None or value <= within.le))


def _bounds(within: Interval | None, even: bool) -> str:
    assert within is not None
    low = within.ge if within.gt is None else within.gt
    high = within.le if within.lt is None else within.lt
    if even:
        return f"must be an even number from {low} to {high}"
    if high not in (None, inf):
        return f"must lie between {low} and {high}"
    return "must be positive" if within.gt == 0 else f"must be at least {low}"
