"""Signatures on what a run leaves: on the files of a result, and on an export of an owner's ledger.

`signed.json` lists the files of a result, each with its digest, under one signature.

Promise    A file that was altered, is missing or was put in the place of another is refused by its name. Files that
           are not listed are no part of the result and are not taken along. A name that leads out of the folder is
           refused, even if the signer listed it.
Against    Anyone who can write into the folder and does not have the signer's key; a signer who lists names of its
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
from comity.privacy.ledger import Check, Sign
from comity.untrusted.file_names import UnsafeName, read_inside
from comity.untrusted.pages import validate

NAME: Final = "signed.json"
_FORMAT: Final = "comity-signed-1"


def sign_files(folder: Path, names: Iterable[str], keys: Identity, *, study: str, run: str) -> None:
    """Sign these files, and all files of these folders. `signed.json` goes last: a folder that has it is whole."""
    found: dict[str, str] = {}
    for name in names:
        path = folder / name
        files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
        found.update({one.relative_to(folder).as_posix(): _digest(one) for one in files})
    signature = keys.sign(_statement(study, run, found))
    page = {"format": _FORMAT, "study": study, "run": run, "files": found, "signature": signature.hex()}
    write_atomically(folder / NAME, json.dumps(page, indent=1) + "\n")


def read_signed_files(folder: Path, signer: PublicIdentity, *, study: str, run: str) -> dict[str, bytes]:
    """The listed files by name. Each is read once: what was checked is what is returned."""
    files = _listed(folder, signer, study, run)
    found: dict[str, bytes] = {}
    for name, digest in files.items():
        path = folder / name
        try:
            content = read_inside(folder, name)
        except UnsafeName as error:
            raise Refused(
                f"{folder / NAME}: lists {name!r}, which {error}; a result holds files of its folder only. Do not "
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
        raise DataError(
            f"{path}: is missing, and nothing vouches for the files without it; fetch a run that has ended"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path}: can't be read ({error!r}); put it back from a backup") from error
    try:
        signer.verify(signature, _statement(study, run, files))
    except Malformed as error:
        raise Refused(
            f"{path}: has no valid signature of its signer for run {run} of study {study[:12]}; it was altered, "
            "or belongs to another run: put it back from a backup",
            code="signature",
            key=NAME,
        ) from error
    return files


def _statement(study: str, run: str, files: Mapping[str, str]) -> bytes:
    return encode(["files of a result", study, run, dict(sorted(files.items()))])


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def export_signer(keys: Identity) -> Sign:
    """Signs what `Ledger.export` states, with the key that studies pin of the owner."""
    return lambda statement: keys.sign(_export_statement(statement))


def export_checker(owner: PublicIdentity) -> Check:
    """Checks the signature for `verify_export`. The key comes from the verifier, never from the export."""
    return lambda signature, statement: owner.verify(signature, _export_statement(statement))


def _export_statement(statement: bytes) -> bytes:
    # The prefix keeps it apart from everything else that the same key signs.
    return encode(["exported ledger", statement])
