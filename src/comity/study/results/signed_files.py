"""The files of a result, each by its digest, in one page that somebody signed: `signed.json`.

Promise    A file that was altered, is missing or was put in the place of another is refused by its name; files that
           are not on the page are no part of the result and are not taken along. A name that leads out of the folder is
           refused, also by the signer.
Against    Whoever can write into the folder and does not have the signer's key; a signer that lists names of its
           reader's files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from comity.crypto.sealing import Identity, PublicIdentity
from comity.errors import DataError, Malformed, Refused
from comity.federation.messages.codec import encode
from comity.files import write_atomically
from comity.untrusted.file_names import UnsafeName, read_inside
from comity.untrusted.pages import validate

NAME: Final = "signed.json"
_FORMAT: Final = "comity-signed-1"


def sign_files(folder: Path, names: Iterable[str], keys: Identity, *, study: str, run: str) -> None:
    """Write the page over these files, and all files of these folders. It goes last: a folder that has it is whole."""
    found: dict[str, str] = {}
    for name in names:
        path = folder / name
        files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
        found.update({one.relative_to(folder).as_posix(): _digest(one) for one in files})
    signature = keys.sign(_said(study, run, found))
    page = {"format": _FORMAT, "study": study, "run": run, "files": found, "signature": signature.hex()}
    write_atomically(folder / NAME, json.dumps(page, indent=1) + "\n")


def checked_files(folder: Path, signer: PublicIdentity, *, study: str, run: str) -> dict[str, bytes]:
    """The files of the page by their names, read once: what was looked at is what is given."""
    files = _listed(folder, signer, study, run)
    found: dict[str, bytes] = {}
    for name, digest in files.items():
        path = folder / name
        try:
            content = read_inside(folder, name)
        except UnsafeName as error:
            raise Refused(
                f"{folder / NAME}: lists {name!r}, which {error}; a result has files of its own folder alone. Do not "
                "use it, and ask its signer",
                code="signature",
                key=NAME,
            ) from error
        except OSError as error:
            raise Refused(
                f"{path}: is part of the result and can't be read ({error.strerror}); put it back from a backup",
                code="signature",
                key=name,
            ) from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise Refused(
                f"{path}: was altered after the result was signed; put it back from a backup, or fetch the result from "
                "another who has it",
                code="signature",
                key=name,
            )
        found[name] = content
    return found


def _listed(folder: Path, signer: PublicIdentity, study: str, run: str) -> Mapping[str, str]:
    path = folder / NAME
    try:
        page = json.loads(path.read_text(encoding="utf-8"))
        if page["format"] != _FORMAT:
            raise ValueError(f"format {page['format']!r}")
        files: dict[str, str] = validate(dict[str, str], page["files"])
        signature = bytes.fromhex(page["signature"])
    except FileNotFoundError:
        raise DataError(f"{path}: is not there, so that nobody vouches for the files; fetch a run that ended") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path}: can't be read ({error!r}); put it back from a backup") from error
    try:
        signer.verify(signature, _said(study, run, files))
    except Malformed as error:
        raise Refused(
            f"{path}: is not signed for run {run} of study {study[:12]} by who should have signed it; it was altered, "
            "or belongs to another run: put it back from a backup",
            code="signature",
            key=NAME,
        ) from error
    return files


def _said(study: str, run: str, files: Mapping[str, str]) -> bytes:
    return encode(["files of a result", study, run, dict(sorted(files.items()))])


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
