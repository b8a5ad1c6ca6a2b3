"""The results folder of one owner: what was released to it, and what its own steps left with it.

    released/    values by their declared names, with forms (`study.results.released`)
    own/         values that its own steps delivered, which never left it; own/NAME/ what the method makes of one
    model/ ...   what the method presents, where this party was released what that takes
    signatures.json   the coordinator's, on each value that it released (`federation.messages.signatures`)
    received.json   written last: a folder that has it has everything. Where the study has an evaluation, its figures
                    with their intervals stand here

It is written from the owner's file, where the values stay: writing it again after a crash gives the same folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from comity.artefacts.artefact import Artefact, load_artefact, save_artefact
from comity.crypto.sealing import PublicIdentity
from comity.entropy import Stream
from comity.errors import DataError, Malformed, Refused
from comity.federation.declare.consortium import ITSELF, Consortium
from comity.federation.declare.declaration import Declaration
from comity.federation.declare.payers import delta_of, format_spent, spent_by
from comity.federation.evaluation.figures import Figures
from comity.federation.messages.ask import END
from comity.federation.messages.codec import encode
from comity.federation.messages.received import Received, is_kept
from comity.federation.messages.signatures import Signatures, check_signed_value
from comity.files import make_folder, write_atomically
from comity.study.results.released import Released, load_released, released_of, save_released
from comity.untrusted.file_names import check_name

_FORMAT: Final = "comity-received-1"
PAGE: Final = "received.json"
_SIGNED: Final = "comity-signatures-1"
_SIGNATURES: Final = "signatures.json"


def save_received(
    found: Received,
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
    save_released(released_of(found.releases, declaration, consortium), folder / "released")
    if found.own:
        own = (Released(name, party, party, (), "stays with its owner", "", value) for name, value in found.own.items())
        save_released(tuple(own), folder / "own")
    for name, artefact in (kept or {}).items():
        save_artefact(artefact, folder / "own" / name)
    if isinstance(presented, Artefact):
        save_artefact(presented, folder / presented.place)
    signed = {
        name: [[path, signature.hex()] for path, signature in paths.items()] for name, paths in found.signatures.items()
    }
    write_atomically(folder / _SIGNATURES, json.dumps({"format": _SIGNED, "releases": signed}, indent=1) + "\n")
    due = [one.name for one in declaration.seen_by(party, consortium) if is_kept(one) and one.to != ITSELF]
    page = {
        "format": _FORMAT,
        "party": party,
        "study": study,
        "run": run,
        "released": list(found.releases),
        "own": list(found.own),
        # Used as they came, and no proof for anybody else.
        "unsigned": [name for name in found.releases if name not in found.signatures],
        # Declared to this party and not there: it was lost on the way, or the run made none.
        "missing": [name for name in due if name not in found.releases],
        "presented": presented.place if isinstance(presented, Artefact) else None,
        "evaluation": None if measured is None else measured.as_json(),
        "loss": format_spent(spent_by(declaration, party, consortium), delta_of(consortium)),
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
        if page["format"] != _FORMAT:
            raise ValueError(f"format {page['format']!r}")
        own, presented = bool(page["own"]), page["presented"]
        if presented is not None:
            check_name(presented)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path}: can't be read ({error!r}); give the results folder of a party") from error
    found = Received(
        _values(load_released(folder / "released")),
        _values(load_released(folder / "own")) if own else {},
        _signatures(folder / _SIGNATURES),
    )
    return found, None if presented is None else load_artefact(folder / presented)


def check_received(found: Received, folder: Path, coordinator: PublicIdentity, *, study: str, run: str) -> None:
    """Refuse a value of this folder that the coordinator has not signed as released by the run."""
    for name, paths in found.signatures.items():
        value = found.releases.get(name)
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


def _values(found: tuple[Released, ...]) -> Mapping[str, Any]:
    return {one.name: one.value for one in found}
