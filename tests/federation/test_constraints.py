"""Fields hold what their types say, in Python as in a study's table."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan
from typing import Annotated, Literal

import pytest
from annotated_types import Interval, MultipleOf

from comity.errors import StudyError
from comity.federation.constraints import Key, Positive, Why
from comity.federation.protocol import Protocol
from comity.methods.averaging import Averaging


@dataclass(frozen=True, kw_only=True)
class LocalRecords(Protocol):
    name = "held"
    way: Literal["sum", "mean"] = "sum"
    often: Annotated[int, Interval(ge=1, le=3)] = 1
    weight: Positive | None = None
    share: Annotated[float, Interval(gt=0, lt=1)] = 0.5
    pairs: Annotated[int, Interval(ge=2, le=8), MultipleOf(2)] = 2
    most: Annotated[int, Interval(ge=2), Key("rows_at_most")] = 2
    scale: Annotated[float, Interval(gt=0), Why("noise is divided by it")] = 1.0
    free: int | str = 0


@pytest.mark.parametrize(
    ("field", "wrong", "said"),
    [
        ("way", "median", "held.way must be one of sum, mean, found 'median'"),
        ("way", ["sum"], "must be one of"),
        ("often", 0, "held.often must lie between 1 and 3, found 0"),
        ("often", 4, "must lie between 1 and 3"),
        ("weight", 0.0, "held.weight must be positive, found 0.0"),
        ("weight", nan, "must be positive"),
        ("weight", inf, "must lie|must be positive"),
        ("scale", nan, "held.scale must be positive, found nan: noise is divided by it"),
        ("share", 1.0, "must lie between 0 and 1"),
        ("share", nan, "must lie between 0 and 1"),
        ("pairs", 3, "held.pairs must be an even number from 2 to 8, found 3"),
        ("pairs", 10, "must be an even number"),
        ("most", 1, "held.rows_at_most must be at least 2, found 1"),
    ],
)
def test_what_a_type_rules_out_is_refused_by_its_key(field: str, wrong: object, said: str) -> None:
    with pytest.raises(StudyError, match=said) as caught:
        LocalRecords(**{field: wrong})  # type: ignore[arg-type]
    assert caught.value.key == f"held.{'rows_at_most' if field == 'most' else field}"


def test_what_it_allows_passes() -> None:
    LocalRecords(way="mean", often=3, weight=1e-9, share=0.999, pairs=8, most=2, free="anything")


def test_a_method_made_in_python_meets_the_bounds_of_a_study() -> None:
    for wrong in ({"rounds": 0}, {"rounds": 1001}, {"clip": 0.0}, {"l2": nan}, {"solver": "newton"}, {"model": "tree"}):
        with pytest.raises(StudyError, match=f"averaging.{next(iter(wrong))}"):
            Averaging.over_rows(features=3, **wrong)
