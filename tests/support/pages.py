"""Values in nested JSON pages, by their paths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def list_leaves(page: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The place of each value of a page; of a list the first entry stands for all."""
    if isinstance(page, dict):
        for key, value in page.items():
            yield from list_leaves(value, (*path, key))
    elif isinstance(page, list) and page:
        yield from list_leaves(page[0], (*path, 0))
    else:
        yield path


def value_at(page: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        page = page[step]
    return page


def replace_value(page: Any, path: tuple[str | int, ...], value: Any) -> Any:
    if not path:
        return value
    return (
        {**page, path[0]: replace_value(page[path[0]], path[1:], value)}
        if isinstance(page, dict)
        else [replace_value(page[0], path[1:], value), *page[1:]]
    )
