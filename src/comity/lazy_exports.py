"""Names of a package that are imported when they are first used: importing the package stays fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def export_lazily(
    package: dict[str, Any], modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for the package with these globals; `modules` says where each name is defined.

        __getattr__, __dir__ = export_lazily(globals(), {"Ledger": "comity.privacy.ledger"})

    `dir` shows the names of `__all__`, or those of `modules`, and not what the package imports. No submodule may have
    the name of an export: once imported, the submodule would take the export's place.
    """

    def load_name(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        package[name] = getattr(import_module(modules[name]), name)
        return package[name]

    def list_names() -> list[str]:
        return sorted(package.get("__all__", modules))

    return load_name, list_names
