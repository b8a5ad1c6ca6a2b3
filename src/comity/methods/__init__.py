"""The methods, by the name that a study gives: a folder each, and a line here. A study imports its own and no other."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from comity.lazily import lazily
from comity.methods.entry import Entry, Home, found

if TYPE_CHECKING:
    from comity.methods.method import Method, Setting

PROTOCOLS: Final[dict[str, str]] = {
    "averaging": "comity.methods.averaging.entry",
    "softlabel": "comity.methods.softlabel.entry",
    "summary": "comity.methods.summary.entry",
    "synthetic": "comity.methods.synthetic.entry",
    "vertical": "comity.methods.vertical.entry",
}
"""Where the entry of each method is: a module with `ENTRY`."""


def entry_of(name: str) -> Entry:
    entry: Entry = import_module(PROTOCOLS[name]).ENTRY
    return entry


def entries() -> dict[str, Entry]:
    return {name: entry_of(name) for name in PROTOCOLS}


def method_of(name: str) -> type[Method]:
    table: type[Method] = found(entry_of(name).method)
    return table


def artefact_kinds() -> dict[str, Home]:
    """What the methods present beside models, datasets and tables, by kind."""
    return {kind: home for entry in entries().values() for kind, home in entry.artefacts.items()}


__all__ = ["PROTOCOLS", "Entry", "Method", "Setting", "artefact_kinds", "entries", "entry_of", "method_of"]

_HOMES = {"Method": "comity.methods.method", "Setting": "comity.methods.method"}
__getattr__, __dir__ = lazily(globals(), _HOMES)
