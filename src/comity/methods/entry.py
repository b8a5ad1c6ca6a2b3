"""What is known of a method before it is used: names of modules, none of which is imported until somebody needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

Home = str
"""Where something is found: "package.module:name"."""


def found(home: Home) -> Any:
    module, _, name = home.partition(":")
    return getattr(import_module(module), name)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A method, for everything that lists methods.

    `method`      its class: what its table in a study becomes, and what Python calls.
    `starter`     writes a study that runs as it is into an empty folder: `comity new`.
    `estimators`  its faces for scikit-learn, by their names in `comity.estimators`.
    `artefacts`   kinds of what it presents, by the name that a saved folder gives.
    """

    method: Home
    starter: Home
    estimators: Mapping[str, Home] = field(default_factory=dict)
    artefacts: Mapping[str, Home] = field(default_factory=dict)
