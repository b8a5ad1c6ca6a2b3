"""The interface of what a protocol presents, and the kinds that a folder may hold.

A folder comes from somewhere else: its `artefact.json` names a kind, never a class. Kinds are entered here or in the
entry of a method, with where their class is found; loading imports nothing that a folder names, and no kind uses a
format that runs code.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, Self, runtime_checkable

from comity.artefacts.section import Section
from comity.errors import DataError, did_you_mean
from comity.files import make_folder, make_private, write_atomically

PAGE: Final = "artefact.json"
_FORMAT: Final = "comity-artefact-1"
_MOST_BYTES: Final = 1 << 20

KINDS: Final[dict[str, str]] = {
    "constant": "comity.learn.classifiers:ConstantClassifier",
    "dataset": "comity.artefacts.dataset:Dataset",
    "linear": "comity.learn.classifiers:LinearClassifier",
    "regression": "comity.learn.regressor:LinearRegressor",
    "table": "comity.artefacts.table:Table",
}
"""Where the class of each kind is found, a module and a name in it: those that several methods present."""


def kinds() -> dict[str, str]:
    """All of them, with those of single methods, which their entries name. Methods are a floor above: they are looked
    up when a folder is read or written, never imported here."""
    of_methods: dict[str, str] = import_module("comity.methods").artefact_kinds()
    return {**of_methods, **KINDS}


@dataclass(frozen=True)
class Card:
    """What an artefact says of itself on its card; what its release cost, and whether it is any good, is added there.

    `what` is a sentence without its end, which goes on "learned from the records of 3 parties" with `made` = "learned".
    `parts` are further headings with their text.
    """

    title: str
    what: str
    made: str = "made"
    parts: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class Artefact(Protocol):
    """What a consumer works with, made of released values alone.

    `kind` is its name among `kinds`, `place` the folder of a run that it is saved in.
    """

    kind: ClassVar[str]
    place: ClassVar[str]

    def save(self, folder: Path) -> None:
        """Write flat files into `folder`, which exists and is empty; no format that runs code when it is read."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        """What `save` wrote; a `DataError` whatever is wrong with it."""

    def card(self) -> Card: ...

    def section(self, noise: float | None = None) -> Section:
        """Its part of a page; `noise` is the standard deviation in each released number, where it is known."""


def save_artefact(artefact: Artefact, folder: Path) -> None:
    """Write file by file under its final name only when complete; `artefact.json`, which is read first, goes last.

    Whatever an earlier artefact left in the folder is gone afterwards.
    """
    if artefact.kind not in kinds():
        raise ValueError(f"{type(artefact).__name__}: the kind {artefact.kind!r} is not registered")
    fresh = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    make_folder(fresh)
    try:
        artefact.save(fresh)
        make_private(fresh)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    make_folder(folder)
    (folder / PAGE).unlink(missing_ok=True)
    made = sorted(path.name for path in fresh.iterdir())
    for path in folder.iterdir():
        if path.name not in made and path.is_file():
            path.unlink()
    for name in made:
        (fresh / name).replace(folder / name)
    fresh.rmdir()
    write_atomically(folder / PAGE, json.dumps({"format": _FORMAT, "kind": artefact.kind}) + "\n")


def load_artefact(folder: str | Path) -> Artefact:
    """The model, dataset or table that a run saved into `folder`.

        dataset = comity.load_artefact("runs/visits/data")
        dataset.frame

    Anything else is a `DataError`. Loading runs no code of the folder.
    """
    folder = Path(folder)
    path = folder / PAGE
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError("it is larger than any such page")
        page = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: can't be read ({error}); give a folder that a run released") from error
    if not isinstance(page, dict) or page.get("format") != _FORMAT:
        raise DataError(f"{path}: expected format {_FORMAT!r}; it is of another program, or of another comity")
    return kind_of(page.get("kind"), str(path)).load(folder)


def kind_of(kind: Any, where: str) -> type[Artefact]:
    """The class of a kind that is among `kinds`."""
    known = kinds()
    if not isinstance(kind, str) or kind not in known:
        near = did_you_mean(kind, known) if isinstance(kind, str) else "."
        raise DataError(f"{where}: {kind!r} is no kind of artefact{near} A newer comity may know it")
    module, _, leaf = known[kind].partition(":")
    found: type[Artefact] = getattr(import_module(module), leaf)
    return found
