"""What this machine submitted: for each run the study's hash and the coordinator's keys, kept outside the run's folder.

    $COMITY_HOME/submitted/RUN.json

Promise    `comity fetch` takes neither the signer's key nor the study's hash from the folder that it verifies. A note
           that is missing or damaged says nothing, and what nobody vouches for is refused.
Against    Whoever can write into the folder of a run, or hands one over.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from comity.artefacts.writing import write_text
from comity.crypto.sealing.sealed import PublicIdentity
from comity.errors import BadInput, DataError
from comity.privacy.ledger.witness import heads_folder
from comity.runtime.results.received import safe_name

_FORMAT: Final = "comity-submission-1"


@dataclass(frozen=True)
class Submission:
    """A run as its coordinator began it. `text` is the digest of the study file."""

    study: str
    run: str
    text: str
    coordinator: PublicIdentity


def note_submission(study: str, run: str, text: str, coordinator: PublicIdentity) -> None:
    """Write down what is about to be submitted: the study's hash, and its text as it is in the run's folder."""
    page = {
        "format": _FORMAT,
        "study": study,
        "run": run,
        "text": digest(text.encode()),
        "coordinator": coordinator.to_texts(),
    }
    try:
        write_text(_path(run), json.dumps(page, indent=1) + "\n")
    except BadInput as error:
        raise BadInput(
            f"{error}: what is submitted is noted here. Make it writable, or set COMITY_HOME to a folder that lasts; "
            "nothing was submitted",
            code=error.code,
        ) from error


def find_submission(run: str) -> Submission | None:
    """The note about a run; None where this machine did not submit it."""
    path = _path(run)
    try:
        page = json.loads(path.read_text(encoding="utf-8"))
        if page["format"] != _FORMAT or page["run"] != run:
            raise ValueError("it is about another run, or of another format")
        return Submission(
            str(page["study"]), run, str(page["text"]), PublicIdentity.from_texts(dict(page["coordinator"]))
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{path}: can't be read as the note of a submission ({type(error).__name__}); remove it, and give the "
            "coordinator's keys: --keys FILE",
            key="keys",
        ) from error


def digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _path(run: str) -> Path:
    return heads_folder().parent / "submitted" / f"{safe_name(run)}.json"
