"""Names of a package that are imported when they are first used, because what they come with takes long to import."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: dict[str, Any], homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of the package with these globals, for names and the modules that they come from.

    `dir` shows the names of `__all__`, or those of `homes`: what the package is for, not what it imports.
    A module may not be called like a name that it holds: once imported it would stand in its place.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        package[name] = getattr(import_module(homes[name]), name)
        return package[name]

    def names() -> list[str]:
        return sorted(package.get("__all__", homes))

    return find, names
