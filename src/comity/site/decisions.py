"""An owner's decisions about studies: taken under one lock, about what was shown, and kept in a signed record.

    studies/decisions.jsonl    one line a decision: the study, what was decided, who and when; each line has the digest
                               of the line before it and the site's signature

Promise    An approval is about what its owner saw: a plan, a budget or terms that changed since are refused and shown
           again. Two people who decide at once decide one after the other. The record shows all decisions in their
           order; a line that was changed, removed or put in is found, except for lines cut off at the end.
Against    A second window, a study or site file that changes while somebody reads, and later edits of the record by
           anyone without the site's key.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from comity.crypto.sealing import Identity, PublicIdentity
from comity.errors import BadInput, Malformed, Refused, Stopped
from comity.federation.messages.codec import encode
from comity.federation.owner.registry import Owner
from comity.files import locked, make_folder, open_private
from comity.site.approval import ApprovalPreview, preview_approval
from comity.site.inbox import Arrival, Decision, Inbox
from comity.site.site_file import SiteFile
from comity.untrusted.pages import validate

RECORD = "decisions.jsonl"
MAX_REASON = 500
"""Characters of a reason, which the coordinator reads."""
_START = "0" * 64
_LOCK_SECONDS = 30.0


class Changed(Refused):
    """What an owner decided about is no longer what it was shown."""

    code = "changed"


def digest_of_shown(preview: ApprovalPreview, arrival: Arrival) -> str:
    """A digest of what an approval rests on: the plan, what leaves, what is left now and after, the parties and which
    of them are pinned, the warnings about the records, and the decision that is in force.

    What is left is taken exactly, not as rounded on the page. The ledger's head is not in it: every step of every run
    moves the head, and an owner with a run in progress could never approve. A run that begins or ends changes what is
    left."""
    view = preview.view
    before, after = view.accounts
    shown = {
        **preview.as_json(),
        "left": [str(before.left), str(after.left), str(before.granted), str(before.frozen)],
        "decision": None if arrival.decision is None else asdict(arrival.decision),
    }
    return hashlib.sha256(json.dumps(shown, sort_keys=True, default=str).encode()).hexdigest()


def approve_study(
    site: SiteFile, owner: Owner, study: str, *, dataset: str, runs: int, by: str, shown: str | None = None
) -> ApprovalPreview:
    """Approve a study for a dataset and `runs` runs in all. `shown` is the digest of what the owner saw; None where the
    caller shows nothing. Reads all records."""
    box = Inbox(site.home)
    with _deciding(site.home):
        arrival = box.find(study)
        preview = preview_approval(site, owner, box.study(arrival.study), dataset=dataset, runs=runs)
        if shown is not None and digest_of_shown(preview, arrival) != shown:
            raise Changed(
                f"study {arrival.study[:12]}: something changed since it was shown: the plan, the budget, the site "
                "file, the warnings about the records, or a decision. Read it again, and decide then"
            )
        # The record first: a decision in force without a record would be worse than one that is repeated.
        decision = box.make_approval(dataset=dataset, runs=runs, by=by)
        append_decision(site.home, owner.keys, site.party, arrival, decision)
        box.decide(arrival.study, decision)
    return preview


def refuse_study(site: SiteFile, owner: Owner, study: str, *, why: str, by: str) -> Arrival:
    """Refuse a study, or withdraw its approval."""
    if len(why) > MAX_REASON:
        raise BadInput(f"a reason has at most {MAX_REASON} characters, found {len(why)}; shorten it", key="why")
    box = Inbox(site.home)
    with _deciding(site.home):
        arrival = box.find(study)
        decision = box.make_refusal(why, by)
        append_decision(site.home, owner.keys, site.party, arrival, decision)
        box.decide(arrival.study, decision)
    return box.find(arrival.study)


@contextmanager
def _deciding(home: Path) -> Iterator[None]:
    folder = home / "studies"
    make_folder(folder)
    busy = Stopped(f"{folder}: somebody else is deciding; try again in a moment")
    with locked(folder / ".deciding", seconds=_LOCK_SECONDS, blocked=lambda: busy):
        yield


# The record.


@dataclass(frozen=True)
class RecordedDecision:
    """One line of the record."""

    party: str
    study: str
    name: str
    decision: Decision
    before: str
    signature: str


def append_decision(home: Path, keys: Identity, party: str, arrival: Arrival, decision: Decision) -> None:
    """Sign a decision and append it."""
    path = home / "studies" / RECORD
    before = _digest(_last_line(path))
    fields = [party, arrival.study, arrival.name, asdict(decision), before]
    line = RecordedDecision(party, arrival.study, arrival.name, decision, before, keys.sign(_statement(fields)).hex())
    try:
        descriptor = open_private(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, (json.dumps(asdict(line)) + "\n").encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Stopped(f"{path}: can't be written ({error.strerror}); nothing was decided") from error


def read_decisions(home: Path, key: PublicIdentity) -> list[RecordedDecision]:
    """The decisions in their order; refused where a line was changed, removed or put in."""
    path, before, found = home / "studies" / RECORD, _START, list[RecordedDecision]()
    for number, line in enumerate(_lines(path), start=1):
        try:
            one: RecordedDecision = validate(RecordedDecision, json.loads(line))
            fields = [one.party, one.study, one.name, asdict(one.decision), one.before]
            key.verify(bytes.fromhex(one.signature), _statement(fields))
            if one.before != before:
                raise ValueError("it does not follow the line before")
        except (ValueError, TypeError, RecursionError, Malformed) as error:
            raise Refused(
                f"{path}: line {number} is not as this site signed it ({error}); restore the file from a backup",
                code="signature",
            ) from error
        before = _digest(line)
        found.append(one)
    return found


def _statement(fields: list[Any]) -> bytes:
    return encode(["decision of an owner", *fields])


def _digest(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest() if line else _START


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="utf-8").split("\n") if line]
    except FileNotFoundError:
        return []


def _last_line(path: Path) -> str:
    lines = _lines(path)
    return lines[-1] if lines else ""
