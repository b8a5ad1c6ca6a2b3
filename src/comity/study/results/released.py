"""What a run released, in files: `released.json` and `arrays.npz`. Opening them runs no code (no pickle).

`released.json` says of each release from whom to whom it went, how it was protected and of what form it was declared;
numbers and texts stand in it, arrays under the release's name in `arrays.npz`.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from comity.artefacts.arrays import read_arrays, write_arrays
from comity.errors import DataError
from comity.federation.declare.consortium import (
    COORDINATOR,
    EVERY_PARTY,
    EVERYONE,
    Consortium,
    Participants,
    format_participants,
)
from comity.federation.declare.declaration import Declaration
from comity.files import make_folder, write_atomically
from comity.representation import short_repr
from comity.untrusted.pages import validate

_FORMAT: Final = "comity-released-1"
_PAGE, _ARRAYS = "released.json", "arrays.npz"


@dataclass(frozen=True, eq=False)
class Released:
    """One release as its receivers got it. `among` are the parties that a role stands for, where `to` is a role.

    `value` is an array, a number, a text or a table of them; a list where the release was made several times. An opened
    sum is a table of the `sum`, in the units of the contributions, and of how many `parties` are in it.
    """

    __repr__ = short_repr

    name: str
    source: str
    to: str
    among: tuple[str, ...]
    protection: str
    form: str
    value: Any

    def reaches(self, participant: str) -> bool:
        if self.to == EVERYONE:
            return True
        if self.to == EVERY_PARTY:
            return participant != COORDINATOR
        return participant == self.to or participant in self.among


def released_of(values: Mapping[str, Any], declaration: Declaration, consortium: Consortium) -> tuple[Released, ...]:
    """Values by the names of their releases, with what was declared of each; in the order of the declaration."""
    return tuple(
        Released(
            release.name,
            format_participants(release.source),
            format_participants(release.to),
            _among(release.to, consortium),
            release.protection.text,
            str(release.form),
            values[release.name],
        )
        for release in declaration.releases
        if release.name in values
    )


def _among(to: Participants, consortium: Consortium) -> tuple[str, ...]:
    """The participants that several names, or a role, stand for."""
    if to in (EVERY_PARTY, EVERYONE):
        return ()
    named = (COORDINATOR,) if isinstance(to, tuple) and consortium.includes(to, COORDINATOR) else ()
    return (*named, *consortium.among(to))


def save_released(released: tuple[Released, ...], folder: Path) -> None:
    """Write into a folder beside it first; `released.json`, which is read first, goes last."""
    fresh = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    make_folder(fresh)
    arrays: dict[str, NDArray[Any]] = {}
    page = {
        "format": _FORMAT,
        "releases": [
            {**{key: value for key, value in vars(one).items() if key != "value"}, "value": _put(one, arrays)}
            for one in released
        ],
    }
    write_arrays(fresh / _ARRAYS, arrays)
    make_folder(folder)
    (fresh / _ARRAYS).replace(folder / _ARRAYS)
    fresh.rmdir()
    write_atomically(folder / _PAGE, json.dumps(page, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def load_released(folder: Path) -> tuple[Released, ...]:
    """What `save_released` wrote; a `DataError` whatever is wrong with it."""
    path = folder / _PAGE
    try:
        page = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: can't be read ({error}); give the folder of a run that has ended") from error
    if not isinstance(page, dict) or page.get("format") != _FORMAT or not isinstance(page.get("releases"), list):
        raise DataError(f"{path}: expected format {_FORMAT!r}; it is of another program, or of another comity")
    arrays = read_arrays(folder / _ARRAYS)
    try:
        return tuple(
            replace(validate(Released, {**one, "value": None}), value=_get(one["value"], arrays))
            for one in page["releases"]
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: is damaged ({error!r}); run the study again, or fetch the folder again") from error


def _put(release: Released, arrays: dict[str, NDArray[Any]]) -> Any:
    def put(value: Any, name: str) -> Any:
        if isinstance(value, np.ndarray):
            arrays[name] = np.ascontiguousarray(value)
            return {"array": name}
        if isinstance(value, Mapping):
            return {"table": {key: put(one, f"{name}.{quote(str(key), safe='')}") for key, one in value.items()}}
        if isinstance(value, list | tuple):
            return {"list": [put(one, f"{name}.{place}") for place, one in enumerate(value)]}
        if isinstance(value, bytes):
            return {"bytes": value.hex()}
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": repr(value)}
        return value.item() if isinstance(value, np.generic) else value

    return put(release.value, release.name)


def _get(stored: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    if not isinstance(stored, dict):
        return stored
    ((kind, content),) = stored.items()
    if kind == "array":
        return arrays[content]
    if kind == "table":
        return {key: _get(one, arrays) for key, one in content.items()}
    if kind == "list":
        return [_get(one, arrays) for one in content]
    if kind == "bytes":
        return bytes.fromhex(content)
    if kind == "float":
        return float(content)
    raise ValueError(f"unknown kind {kind!r}")
