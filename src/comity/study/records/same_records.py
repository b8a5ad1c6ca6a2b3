"""A run goes on with the records that it began with: their digests are kept beside its journal.

A step that ran is not run again. If records changed after a kill, what was made of the old ones would be mixed with the
new ones, and the result would show no sign of it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from comity.data import digest_records
from comity.errors import Refused, StudyError
from comity.learn.local_models import Predictions

if TYPE_CHECKING:
    from comity.study.records.material import Material
    from comity.study.study import Study

NAME = "records.json"


def require_same(study: Study, material: Material, folder: Path) -> None:
    """Write down the digests of what a run begins with; refuse to resume it with anything else."""
    path, found = folder / NAME, digests(study, material)
    try:
        if not path.exists():
            _write(path, json.dumps(found, indent=0, ensure_ascii=False))
            return
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StudyError(f"{path}: can't be read or written ({error}); run the study again") from error
    changed = [name for name in {**known, **found} if known.get(name) != found.get(name)]
    if changed:
        few = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        raise Refused(
            f"{folder}: this run began with other data than it finds ({few}), and what it has done so far was made "
            "from those. Put the files back, or start a new run",
            code="data",
        )


def digests(study: Study, material: Material) -> dict[str, str]:
    """By the names that a person would give them. They tell of private records, so they stay in the run's folder."""
    found = {f"records of {party}": digest_records(records) for party, records in material.parties.items()}
    if material.test is not None:
        found["test records"] = digest_records(material.test)
    for party, model in material.models.items():
        if isinstance(model, Predictions):
            found[f"predictions of {party}"] = digest_records(model.votes)
    auxiliary = getattr(study.protocol, "auxiliary", None)
    if isinstance(auxiliary, np.ndarray):
        found["auxiliary records"] = digest_records(auxiliary)
    return found


def _write(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
