"""What this machine submitted: each run's study hash and coordinator keys, kept outside the run's folder.

    $COMITY_HOME/submitted/RUN.json

Promise    `comity fetch` takes neither the signer's key nor the study's hash from the folder that it verifies. Without
           a readable record here, or keys given by the user, it refuses the folder.
Against    Anyone who can write into a run's folder, or who hands one over.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from comity.crypto.sealing import PublicIdentity
from comity.errors import BadInput, DataError, Refused
from comity.files import write_atomically
from comity.privacy.ledger import heads_folder
from comity.study.results.released import safe_name

_FORMAT: Final = "comity-submission-1"


@dataclass(frozen=True)
class Submission:
    """A run as its coordinator started it. `text` is the digest of the study file."""

    study: str
    run: str
    text: str
    coordinator: PublicIdentity


def record_submission(study: str, run: str, text: str, coordinator: PublicIdentity) -> None:
    """Record a submission before it happens: the study's hash, and its text as in the run's folder."""
    page = {
        "format": _FORMAT,
        "study": study,
        "run": run,
        "text": digest(text.encode()),
        "coordinator": coordinator.to_texts(),
    }
    try:
        write_atomically(_path(run), json.dumps(page, indent=1) + "\n")
    except BadInput as error:
        raise BadInput(
            f"{error}: submissions are recorded here. Make it writable, or set COMITY_HOME to a lasting folder; "
            "nothing was submitted",
            code=error.code,
        ) from error


def find_submission(run: str) -> Submission | None:
    """The record of a run; None if this machine did not submit it."""
    path = _path(run)
    try:
        page = json.loads(path.read_text(encoding="utf-8"))
        if page["format"] != _FORMAT or page["run"] != run:
            raise ValueError("another run or another format")
        return Submission(
            str(page["study"]), run, str(page["text"]), PublicIdentity.from_texts(dict(page["coordinator"]))
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{path}: can't be read as the record of a submission ({type(error).__name__}); remove it, and give the "
            "coordinator's keys: --keys FILE",
            key="keys",
        ) from error


def require_submission(folder: Path, *, study: str, run: str, given: PublicIdentity | None) -> Submission:
    """What a folder that claims to be `run` of `study` must contain: as recorded when it was submitted, or as signed
    with the keys that the user gave."""
    known = find_submission(run)
    if known is None:
        if given is None:
            raise Refused(
                f"{folder}: run {run} was not submitted from here, and a folder can't prove who signed it; give the "
                "coordinator's public keys, which you received over another channel: --keys FILE",
                code="keys",
                key="keys",
            )
        return Submission(study, run, "", given)
    if known.study != study:
        raise Refused(
            f"{folder}: run {run} was submitted as study {known.study[:12]}, and the folder has study "
            f"{study[:12]}; put the folder back from a backup",
            code="study",
            key="study",
        )
    if given is not None and given != known.coordinator:
        raise Refused(
            f"{folder}: run {run} was submitted with other keys than --keys gives; leave the option out",
            code="keys",
            key="keys",
        )
    return known


def check_submitted(folder: Path, files: Mapping[str, bytes], expected: Submission) -> None:
    """Refuse a study file or a result that does not belong to the run: a common signature is not enough."""
    if expected.text and digest(files.get("study.toml", b"")) != expected.text:
        raise Refused(
            f"{folder / 'study.toml'}: is not the study that was submitted; put it back from a backup",
            code="study",
            key="study.toml",
        )
    try:
        page = json.loads(files["result.json"])
        named = (page["study_hash"], page["run"])
    except (KeyError, TypeError, ValueError, RecursionError):
        named = ("", "")
    if named != (expected.study, expected.run):
        raise Refused(
            f"{folder / 'result.json'}: is missing, or is not the result of run {expected.run} of study "
            f"{expected.study[:12]}; put it back from a backup",
            code="study",
            key="result.json",
        )


def digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _path(run: str) -> Path:
    return heads_folder().parent / "submitted" / f"{safe_name(run)}.json"
