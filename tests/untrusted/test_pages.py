"""Pages of JSON: a value of another type than declared is found where it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from comity.untrusted.pages import validate


@dataclass(frozen=True)
class Counted:
    name: str
    size: int
    share: float | None = None


def test_a_page_of_the_declared_types_is_read() -> None:
    assert validate(Counted, {"name": "ä", "size": 2, "share": 1}) == Counted("ä", 2, 1.0)
    assert validate(tuple[Counted, ...], [{"name": "a", "size": 0}]) == (Counted("a", 0),)


@pytest.mark.parametrize(
    "page",
    [
        {"name": "a"},
        {"name": 1, "size": 1},
        {"name": "a", "size": "1"},
        {"name": "a", "size": 1.5},
        {"name": "a", "size": True},
        {"name": "a", "size": 1, "share": float("nan")},
        {"name": "a", "size": 1, "share": float("inf")},
        {"name": "\ud800", "size": 1},
        {"name": "a", "size": 1, "share": []},
        ["a", 1],
        None,
    ],
)
def test_anything_else_is_one_short_error(page: Any) -> None:
    with pytest.raises(ValueError) as found:
        validate(Counted, page)
    assert type(found.value) is ValueError and "\n" not in str(found.value) and len(str(found.value)) < 300


def test_what_nests_too_deeply_is_one_short_error() -> None:
    page: Any = []
    for _ in range(100_000):
        page = [page]
    with pytest.raises(ValueError, match="nested"):
        validate(list[Any], page)


def test_an_integer_that_would_be_an_infinite_number_is_refused() -> None:
    assert validate(float, 10**300) == 1e300
    with pytest.raises(ValueError, match="more digits"):
        validate(float, 10**400)
