"""What an owner received, scored on its own records: kept at its site for its own eyes, and in nothing that leaves.

    own-scores/HASH-RUN.json    mode 0600, beside the results and not among them: results are signed, fetched and may be
                                passed on, and a figure about records may not

No line of a log has it either: a collector may read those. It is shown by `comity site status` and `comity fetch`.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from comity.artefacts.writing import write_text
from comity.errors import BadInput
from comity.federation.own_score import OwnScore
from comity.federation.protocol import presented_to
from comity.study.results.received import safe_name
from comity.untrusted.pages import typed

if TYPE_CHECKING:
    from comity.federation.owner.host import Host

log = logging.getLogger("comity.site")

_FOLDER = "own-scores"


def score_results(host: Host, home: Path, run: str) -> None:
    """Score what a host has of a run that ended. Nothing that goes wrong here stops anything else: the log says that
    there is no score, and nothing of the records."""
    try:
        found = _scored(host, run)
    except Exception:
        # What a model or a reader says of records may quote them.
        log.warning("%s: what run %s released could not be scored on the records here", host.party, run)
        found = None
    page = {"score": None if found is None else asdict(found)}
    try:
        write_text(_path(home, host.agreed.study, run), json.dumps(page) + "\n")
    except BadInput as error:
        log.warning("%s: the score of run %s can't be kept: %s", host.party, run, error)


def _scored(host: Host, run: str) -> OwnScore | None:
    protocol = host.agreed.protocol
    presented = presented_to(protocol, host.received(run), host.who)
    return None if presented is None else protocol.score_own(presented, host.records, host.party)


def is_scored(home: Path, study: str, run: str) -> bool:
    """Whether it was tried, with or without success."""
    return _path(home, study, run).exists()


def own_score(home: Path, study: str, run: str) -> OwnScore | None:
    """The score of a run of the study with this hash; None where there is none, or its file can't be read."""
    try:
        page = json.loads(_path(home, study, run).read_text(encoding="utf-8"))
        score: OwnScore | None = typed(OwnScore | None, page["score"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return score


def _path(home: Path, study: str, run: str) -> Path:
    return home / _FOLDER / f"{study[:12]}-{safe_name(run)}.json"
