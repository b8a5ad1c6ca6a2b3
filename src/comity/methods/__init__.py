"""The registry of methods: a line for each, by its name in a study. A method is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from comity.lazy_exports import export_lazily

if TYPE_CHECKING:
    from comity.methods.method import Method, Setting

PROTOCOLS: Final[dict[str, str]] = {
    "averaging": "comity.methods.averaging.entry",
    "softlabel": "comity.methods.softlabel.entry",
    "summary": "comity.methods.summary.entry",
    "synthetic": "comity.methods.synthetic.entry",
    "vertical": "comity.methods.vertical.entry",
}
"""The module with the `ENTRY` of each method."""

ImportPath = str
""""package.module:name"."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A method, for everything that lists methods.

    `method`      its class: what its table in a study becomes, and what Python calls.
    `starter`     writes a study that runs as it is into an empty folder: `comity new`.
    `published_starter`  the same with `variant = "published"`; empty where the method has no published form.
    `estimators`  its scikit-learn estimators, by their names in `comity.estimators`.
    `artefacts`   the kinds of artefacts that it presents, by the name in a saved folder.
    """

    method: ImportPath
    starter: ImportPath
    published_starter: ImportPath = ""
    estimators: Mapping[str, ImportPath] = field(default_factory=dict)
    artefacts: Mapping[str, ImportPath] = field(default_factory=dict)


def load_object(path: ImportPath) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def entry_of(name: str) -> Entry:
    entry: Entry = import_module(PROTOCOLS[name]).ENTRY
    return entry


def entries() -> dict[str, Entry]:
    return {name: entry_of(name) for name in PROTOCOLS}


def method_of(name: str) -> type[Method]:
    method: type[Method] = load_object(entry_of(name).method)
    return method


def artefact_kinds() -> dict[str, ImportPath]:
    """The kinds of artefacts that methods present beside models, datasets and tables."""
    return {kind: path for entry in entries().values() for kind, path in entry.artefacts.items()}


__all__ = [
    "PROTOCOLS",
    "Entry",
    "Method",
    "Setting",
    "artefact_kinds",
    "entries",
    "entry_of",
    "load_object",
    "method_of",
]

_HOMES = {"Method": "comity.methods.method", "Setting": "comity.methods.method"}
__getattr__, __dir__ = export_lazily(globals(), _HOMES)
