"""What a run released, in files. Opening them runs no code (no pickle).

A folder `released/` holds `released.json` and `arrays.npz`. `released.json` says of each release from whom to whom it
went, how it was protected and of what form it was declared; numbers and texts stand in it, arrays under the release's
name in `arrays.npz`.

The results folder of one owner holds what was released to it and what its own steps left with it:

    released/    values by their declared names, with forms
    own/         values that its own steps delivered, which never left it; own/NAME/ what the method makes of one
    model/ ...   what the method presents, where this party was released what that takes
    signatures.json   the coordinator's, on each value that it released (`federation.messages.signatures`)
    received.json   written last: a folder that has it has everything; the figures of an evaluation, where the study
                    has one, stand here with their intervals

It is written from the owner's file, where the values stay: writing it again after a crash gives the same folder.
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
from comity.artefacts.artefact import Artefact, load_artefact, save_artefact
from comity.crypto.sealing import PublicIdentity
from comity.entropy import Stream
from comity.errors import DataError, Malformed, Refused
from comity.federation.declare.consortium import (
    COORDINATOR,
    EVERY_PARTY,
    EVERYONE,
    ITSELF,
    Consortium,
    Participants,
    format_participants,
)
from comity.federation.declare.declaration import Declaration
from comity.federation.declare.payers import delta_of, format_charged, spent_by
from comity.federation.evaluation.figures import Figures
from comity.federation.messages.ask import END
from comity.federation.messages.codec import encode
from comity.federation.messages.received import Received, is_kept
from comity.federation.messages.signatures import Signatures, check_signed_value
from comity.files import make_folder, write_atomically
from comity.representation import html_fields, short_repr
from comity.untrusted.file_names import check_name
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
    _repr_html_ = html_fields

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


def describe_releases(
    values: Mapping[str, Any], declaration: Declaration, consortium: Consortium
) -> tuple[Released, ...]:
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


# What one owner has of a run.

_RECEIVED: Final = "comity-received-1"
PAGE: Final = "received.json"
_SIGNED: Final = "comity-signatures-1"
_SIGNATURES: Final = "signatures.json"


def save_received(
    received: Received,
    presented: Any,
    folder: Path,
    *,
    party: str,
    study: str,
    run: str,
    declaration: Declaration,
    consortium: Consortium,
    kept: Mapping[str, Artefact] | None = None,
    measured: Figures | None = None,
) -> None:
    """Write an owner's results. `presented` is what the method makes of them, None where it can make nothing; `kept` is
    what it makes of the owner's own values, by their names; `measured` is what an evaluation found."""
    make_folder(folder)
    save_released(describe_releases(received.releases, declaration, consortium), folder / "released")
    if received.own:
        own = (
            Released(name, party, party, (), "stays with its owner", "", value) for name, value in received.own.items()
        )
        save_released(tuple(own), folder / "own")
    for name, artefact in (kept or {}).items():
        save_artefact(artefact, folder / "own" / name)
    if isinstance(presented, Artefact):
        save_artefact(presented, folder / presented.place)
    signed = {
        name: [[path, signature.hex()] for path, signature in paths.items()]
        for name, paths in received.signatures.items()
    }
    write_atomically(folder / _SIGNATURES, json.dumps({"format": _SIGNED, "releases": signed}, indent=1) + "\n")
    due = [one.name for one in declaration.seen_by(party, consortium) if is_kept(one) and one.to != ITSELF]
    page = {
        "format": _RECEIVED,
        "party": party,
        "study": study,
        "run": run,
        "released": list(received.releases),
        "own": list(received.own),
        # Used as they came, and no proof for anybody else.
        "unsigned": [name for name in received.releases if name not in received.signatures],
        # Declared to this party and not there: it was lost on the way, or the run made none.
        "missing": [name for name in due if name not in received.releases],
        "presented": presented.place if isinstance(presented, Artefact) else None,
        "evaluation": None if measured is None else measured.as_json(),
        "loss": format_charged(spent_by(declaration, party, consortium), delta_of(consortium)),
        "claim": declaration.claim,
        "exposed": declaration.exposed,
    }
    write_atomically(folder / PAGE, json.dumps(page, indent=1, ensure_ascii=False) + "\n")


def load_received(folder: str | Path) -> tuple[Received, Artefact | None]:
    """What `save_received` wrote, and the artefact beside it; a `DataError` whatever is wrong with it."""
    folder = Path(folder)
    path = folder / PAGE
    try:
        page = json.loads(path.read_text(encoding="utf-8"))
        if page["format"] != _RECEIVED:
            raise ValueError(f"format {page['format']!r}")
        own, presented = bool(page["own"]), page["presented"]
        if presented is not None:
            check_name(presented)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path}: can't be read ({error!r}); give the results folder of a party") from error
    received = Received(
        _values(load_released(folder / "released")),
        _values(load_released(folder / "own")) if own else {},
        _signatures(folder / _SIGNATURES),
    )
    return received, None if presented is None else load_artefact(folder / presented)


def check_received(received: Received, folder: Path, coordinator: PublicIdentity, *, study: str, run: str) -> None:
    """Refuse a value of this folder that the coordinator has not signed as released by the run."""
    for name, paths in received.signatures.items():
        value = received.releases.get(name)
        values = value if isinstance(value, list) and next(iter(paths), "") != str(END) else [value]
        try:
            if len(values) != len(paths):
                raise Malformed(f"{len(values)} values and {len(paths)} signatures", code="signature")
            for (path, signature), one in zip(paths.items(), values):
                check_signed_value(coordinator, signature, study, run, name, path, encode(one))
        except Malformed as error:
            raise Refused(
                f"{folder / 'released'}: {name} is not what the coordinator signed ({error}); the files were altered: "
                "put them back from a backup",
                code="signature",
                key=name,
            ) from error


def _signatures(path: Path) -> Signatures:
    try:
        page = json.loads(path.read_text(encoding="utf-8"))
        if page["format"] != _SIGNED:
            raise ValueError(f"format {page['format']!r}")
        return {
            str(name): {str(ask): bytes.fromhex(signature) for ask, signature in paths}
            for name, paths in page["releases"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path}: can't be read ({error!r}); give the results folder of a party") from error


def safe_name(party: str) -> str:
    """A party's name as that of a file or folder: names come from studies and data, and may hold anything. Two parties
    never share one."""
    safe = quote(party, safe=" ", errors="surrogatepass")
    safe = f"%2E{safe[1:]}" if safe.startswith(".") else safe
    return safe if 0 < len(safe) <= 120 else Stream.public("file name", party).bytes(16).hex()


def _values(releases: tuple[Released, ...]) -> Mapping[str, Any]:
    return {one.name: one.value for one in releases}
