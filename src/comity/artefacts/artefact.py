"""The interface of what a protocol presents, and the kinds that a folder may hold.

A folder comes from another party: its `artefact.json` names a kind, never a class. Each kind and the place of its class
are listed here or in the entry of a method. Loading imports nothing that a folder names, and no kind uses a format that
runs code.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, Self, cast, runtime_checkable

from comity.artefacts.section import Section
from comity.errors import DataError, did_you_mean
from comity.files import make_folder, make_private, write_atomically

PAGE: Final = "artefact.json"
_FORMAT: Final = "comity-artefact-1"
_MAX_BYTES: Final = 1 << 20

KINDS: Final[dict[str, str]] = {
    "constant": "comity.learn.classifiers:ConstantClassifier",
    "dataset": "comity.artefacts.dataset:Dataset",
    "linear": "comity.learn.classifiers:LinearClassifier",
    "regression": "comity.learn.regressor:LinearRegressor",
    "table": "comity.artefacts.table:Table",
}
"""The class of each kind that several methods present, as module and name."""


def kinds() -> dict[str, str]:
    """All kinds, with those that entries of single methods list. Methods are a layer above: they are looked up when a
    folder is read or written, and not imported here."""
    of_methods: dict[str, str] = import_module("comity.methods").artefact_kinds()
    return {**of_methods, **KINDS}


@dataclass(frozen=True)
class Card:
    """What an artefact says of itself on its card. The card adds what its release cost and how good it is.

    `what` is the beginning of a sentence that ends "learned from the records of 3 parties" with `made` = "learned".
    `parts` are further headings with their text.
    """

    title: str
    what: str
    made: str = "made"
    parts: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class Artefact(Protocol):
    """What a consumer works with, made from released values alone.

    `kind` is its name among `kinds`, `place` the folder of a run that it is saved in.
    """

    kind: ClassVar[str]
    place: ClassVar[str]

    def save(self, folder: Path) -> None:
        """Write flat files into `folder`, which exists and is empty; no format that runs code when it is read."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        """What `save` wrote; a `DataError` for anything else."""

    def card(self) -> Card: ...

    def section(self, noise: float | None = None) -> Section:
        """Its part of a page; `noise` is the standard deviation of each released number, where it is known."""


def save_artefact(artefact: Artefact, folder: Path) -> None:
    """Write each file completely before it gets its final name; `artefact.json`, which is read first, is written last.

    Files of an earlier artefact in the folder are removed.
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
    page = read_document(path, "artefact", "give a folder that a run released", form=_FORMAT, max_bytes=_MAX_BYTES)
    return kind_of(page.get("kind"), str(path)).load(folder)


def read_document(
    path: Path, what: str, remedy: str, *, form: str, version: int | None = None, max_bytes: int
) -> dict[str, Any]:
    """A JSON object from an untrusted file, of this format and version; errors say `what` was expected."""
    try:
        if path.stat().st_size > max_bytes:
            raise ValueError(f"it is larger than any {what}")
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path.parent}: there is no {what} here (no file {path.name}); {remedy}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: no {what} can be read here ({error}); {remedy}") from error
    expected = f"format {form!r}" + ("" if version is None else f", version {version}")
    fits = isinstance(document, dict) and document.get("format") == form
    if not fits or (version is not None and document.get("version") != version):
        raise DataError(f"{path}: expected {expected}; it is of another program, or of another version of comity")
    return cast(dict[str, Any], document)


def kind_of(kind: Any, where: str) -> type[Artefact]:
    """The class of a kind that is among `kinds`."""
    known = kinds()
    if not isinstance(kind, str) or kind not in known:
        near = did_you_mean(kind, known) if isinstance(kind, str) else "."
        raise DataError(f"{where}: {kind!r} is no kind of artefact{near} A newer comity may know it")
    module, _, leaf = known[kind].partition(":")
    found: type[Artefact] = getattr(import_module(module), leaf)
    return found
