"""The studies that arrived at a site, and the owner's decision about each.

    studies/HASH/study/          the files of the study, as they were packed
    studies/HASH/arrival.json    who submitted it, and when
    studies/HASH/read            exists once the owner has opened it
    studies/HASH/decision.json   approved for a dataset and a number of runs, or refused with the reason
    studies/decisions.jsonl      all decisions in their order, signed (`comity.site.decisions`)

A study is identified by its hash. Its files are read and hashed again at each use: a study that was edited after it
arrived is another study, which nobody approved.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from comity.errors import BadInput, Refused, Stopped, StudyError
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.messages.codec import encode
from comity.federation.owner.registry import Approval
from comity.files import FileState, make_folder, read_file_state, write_atomically
from comity.site.pack import STUDY, Packed, require_only_named, unpack, write_files
from comity.site.pack_limits import (
    LEAST_FREE_BYTES,
    LEAST_FREE_SHARE,
    MAX_UNDECIDED,
    MAX_UNDECIDED_BYTES,
    check_texts,
    examine,
    is_small,
)
from comity.study.study import Study

if TYPE_CHECKING:
    from collections.abc import Iterator

    from comity.crypto.sealing import PublicIdentity
    from comity.federation.declare.policy import Policy

MIN_PREFIX_CHARACTERS = 4
"""The shortest prefix of a hash that may name a study."""
WITHIN_POLICY = "within the policy"
"""The recorded reason of an approval that the policy gave by itself."""
_HEXADECIMAL = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class Decision:
    """The decision of an owner, or of its policy, about a study; `by` names the person who decided, where given."""

    decision: Literal["approved", "refused"]
    when: str
    dataset: str = ""
    runs: int = 0
    why: str = ""
    by: str = ""

    @property
    def moment(self) -> datetime:
        return datetime.fromisoformat(self.when)


@dataclass(frozen=True)
class Arrival:
    """One study in the inbox. `decision` is None until there is one."""

    study: str
    name: str
    protocol: str
    submitter: str
    arrived: str
    read: bool
    decision: Decision | None

    @property
    def is_decided_by_owner(self) -> bool:
        """Whether a person, not the policy alone, approved or refused it."""
        return self.decision is not None and self.decision.why != WITHIN_POLICY

    @property
    def approval(self) -> Approval | None:
        decision = self.decision
        if decision is None or decision.decision != "approved":
            return None
        return Approval(study=self.study, dataset=decision.dataset, runs=decision.runs)


class Inbox:
    """The folder `studies` beside a site file."""

    def __init__(self, home: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.folder = home / "studies"
        self._clock = clock

    # Reading.

    def arrivals(self) -> list[Arrival]:
        """All studies: unread ones first, then the newest first."""
        if not self.folder.is_dir():
            return []
        arrivals = [self._arrival(path.name) for path in self.folder.iterdir() if _is_hash(path.name)]
        newest = sorted(arrivals, key=lambda one: one.arrived, reverse=True)
        return sorted(newest, key=lambda one: one.read)

    def find(self, prefix: str) -> Arrival:
        """The one study whose hash begins with `prefix`."""
        known = [one for one in self.arrivals() if one.study.startswith(prefix.lower())]
        if len(prefix) < MIN_PREFIX_CHARACTERS or not set(prefix.lower()) <= _HEXADECIMAL:
            raise BadInput(
                f"{prefix!r} names no study; give the first {MIN_PREFIX_CHARACTERS} characters of its hash or more: "
                "comity site inbox",
                key="hash",
            )
        if len(known) != 1:
            several = f"{len(known)} studies begin" if known else "no study of the inbox begins"
            raise BadInput(f"{several} with {prefix}; see: comity site inbox", key="hash")
        return known[0]

    def study(self, study: str) -> Study:
        """The study with this hash, read from its files; refused if they were changed since it arrived."""
        path = self.folder / study / "study" / STUDY
        loaded = Study.load(path)
        if loaded.hash != study:
            raise Refused(
                f"refused: the files of study {study[:12]} in {path.parent} were changed after it arrived and are now "
                f"study {loaded.hash[:12]}; its author must submit that one",
                code="study",
            )
        return loaded

    def decision_states(self) -> tuple[tuple[str, FileState | None], ...]:
        """A value that changes whenever a decision does, even if its modification time does not."""
        if not self.folder.is_dir():
            return ()
        folders = sorted(path for path in self.folder.iterdir() if _is_hash(path.name))
        return tuple((path.name, read_file_state(path / _DECISION)) for path in folders)

    # Changing.

    def receive(self, raw: bytes, *, party: str, key: PublicIdentity, policy: Policy) -> Arrival:
        """Take in a packed study that one of the policy's submitters addressed to this party. Receiving it again
        changes nothing."""
        packed = unpack(raw, policy.submitters or {})
        check_texts(packed.files)
        self._require_room(len(raw))
        with self._new_folder() as fresh:
            write_files(packed.files, fresh / "study")
            if not is_small(packed.files):
                _examine_once(packed.files, fresh / "study" / STUDY)
            study = Study.load(fresh / "study" / STUDY)
            require_only_named(packed, study)
            _check_addressed(study, packed.submitter, party, key, policy)
            page = {
                "name": study.name,
                "protocol": study.protocol_name + ("" if study.prediction is None else ", joint prediction"),
                "submitter": packed.submitter,
                "arrived": self._now(),
            }
            write_atomically(fresh / _ARRIVAL, json.dumps(page, indent=1) + "\n")
            if not (self.folder / study.hash).exists():
                self._require_quota(packed)
                fresh.rename(self.folder / study.hash)
        return self._arrival(study.hash)

    def _require_room(self, size: int) -> None:
        """Keep enough of the disk free for the commits of running studies."""
        folder = next(path for path in (self.folder, *self.folder.parents) if path.exists())
        disk = shutil.disk_usage(folder)
        if disk.free - size < min(LEAST_FREE_BYTES, LEAST_FREE_SHARE * disk.total):
            raise Stopped(f"{self.folder}: the disk is almost full, so no study is taken in; free some space")

    def _require_quota(self, packed: Packed) -> None:
        """Limit how many studies of one submitter wait for a decision, and their size."""
        own = [one for one in self.arrivals() if one.submitter == packed.submitter and not one.is_decided_by_owner]
        waiting = sum(one.decision is None for one in own)
        taken = sum(_size(self.folder / one.study) for one in own)
        if waiting >= MAX_UNDECIDED or taken + sum(map(len, packed.files.values())) > MAX_UNDECIDED_BYTES:
            raise Refused(
                f"refused: {waiting} studies of {packed.submitter} wait for a decision here, and with those that the "
                f"policy approved they take {taken:,} bytes; at most {MAX_UNDECIDED} may wait, with "
                f"{MAX_UNDECIDED_BYTES:,} bytes in all. Decide about them: comity site inbox",
                code="quota",
                key="submitters",
            )

    def mark_read(self, study: str) -> None:
        (self.folder / study / _READ).touch(mode=0o600)

    def make_approval(self, *, dataset: str, runs: int, why: str = "", by: str = "") -> Decision:
        """An approval of now, not yet in force."""
        return Decision("approved", self._now(), dataset, runs, why, by)

    def make_refusal(self, why: str, by: str = "") -> Decision:
        """A refusal of now, not yet in force."""
        return Decision("refused", self._now(), why=why, by=by)

    def approve(self, study: str, *, dataset: str, runs: int, why: str = "", by: str = "") -> Decision:
        """Approve a study for a dataset and for `runs` runs in all, including those already started."""
        return self.decide(study, self.make_approval(dataset=dataset, runs=runs, why=why, by=by))

    def refuse(self, study: str, why: str, by: str = "") -> Decision:
        """Refuse a study, even one approved before: nothing of it runs after the ask in progress."""
        return self.decide(study, self.make_refusal(why, by))

    def decide(self, study: str, decision: Decision) -> Decision:
        """Put a decision in force. People decide through `comity.site.decisions`, which also records it."""
        self.mark_read(study)
        write_atomically(self.folder / study / _DECISION, json.dumps(asdict(decision), indent=1) + "\n")
        return decision

    def _arrival(self, study: str) -> Arrival:
        folder = self.folder / study
        page = _fields(folder / _ARRIVAL, _ARRIVAL_FIELDS)
        decision = _decision(folder / _DECISION) if (folder / _DECISION).exists() else None
        return Arrival(study, **page, read=(folder / _READ).exists(), decision=decision)

    @contextmanager
    def _new_folder(self) -> Iterator[Path]:
        make_folder(self.folder)
        self._remove_left_over()
        fresh = Path(tempfile.mkdtemp(prefix=_FRESH, dir=self.folder))
        try:
            make_folder(fresh / "study")
            yield fresh
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _remove_left_over(self) -> None:
        """Remove what a process left that was killed while receiving a study; receiving never takes this long."""
        for path in self.folder.glob(f"{_FRESH}*"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _LEFT_OVER_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)

    def _now(self) -> str:
        return self._clock().astimezone(UTC).isoformat(timespec="milliseconds")


_FRESH, _LEFT_OVER_SECONDS = ".new-", 600.0
_ARRIVAL, _READ, _DECISION = "arrival.json", "read", "decision.json"


def _check_addressed(study: Study, submitter: str, party: str, key: PublicIdentity, policy: Policy) -> None:
    """Refuse a study that does not ask this site, or whose coordinator did not submit it."""
    roster = study.consortium.roster
    short = study.hash[:12]
    if policy.submitters is not None and roster.get(COORDINATOR) != policy.submitters[submitter]:
        raise Refused(
            f"refused: {submitter} submitted study {short}, which pins another coordinator; that one must submit it",
            code="policy",
            key="submitters",
        )
    if party not in study.consortium.parties:
        raise Refused(f"refused: study {short} has no party {party!r}; see its [parties]", code="study", key="parties")
    if roster.get(party) != key:
        raise Refused(
            f"refused: study {short} pins another key of {party} than this site has; send yours to its author",
            code="keys",
            key="keys",
        )
    policy.check_pinned(study.consortium)
    if study.prediction is not None:
        # The policy excludes exact scores unless the owner allows them, so the owner is not asked about each study.
        policy.check_disclosures(study.agreement.declaration, party, study.consortium)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _is_hash(name: str) -> bool:
    return len(name) == 64 and set(name) <= _HEXADECIMAL


_ARRIVAL_FIELDS = {"name": str, "protocol": str, "submitter": str, "arrived": str}
_DECISION_FIELDS = {"decision": str, "when": str, "dataset": str, "runs": int, "why": str, "by": str}
# Decisions that were made before they named a person do not have it.
_OPTIONAL = {"by": ""}


def _decision(path: Path) -> Decision:
    page = _fields(path, _DECISION_FIELDS)
    decision = Decision(**page)
    if decision.decision not in ("approved", "refused"):
        raise _unreadable(path, "decision", decision.decision, '"approved" or "refused"')
    if decision.decision == "approved" and decision.runs < 1:
        raise _unreadable(path, "runs", decision.runs, "1 or more")
    return decision


def _fields(path: Path, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Read a JSON file with exactly these keys, each of its type."""
    try:
        page = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise StudyError(f"{path}: can't be read ({error}); {_RESTORE}") from error
    if isinstance(page, dict):
        page = {**{key: value for key, value in _OPTIONAL.items() if key in kinds}, **page}
    if not isinstance(page, dict) or set(page) != set(kinds):
        found = ", ".join(sorted(map(ascii, page))) if isinstance(page, dict) else type(page).__name__
        raise StudyError(f"{path}: expected the keys {', '.join(kinds)}, found {found[:200] or 'none'}; {_RESTORE}")
    for key, kind in kinds.items():
        # Not isinstance: a bool is an int in Python.
        if type(page[key]) is not kind:
            raise _unreadable(path, key, page[key], "a whole number" if kind is int else "a text")
    when = "arrived" if "arrived" in kinds else "when"
    try:
        moment = datetime.fromisoformat(page[when])
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _unreadable(path, when, page[when], "a time with its UTC offset, as in 2026-01-31T12:00:00+00:00")
    return page


def _unreadable(path: Path, key: str, found: object, expected: str) -> StudyError:
    return StudyError(f"{path}: {key} must be {expected}, found {ascii(found)[:80]}; {_RESTORE}", key=key)


_RESTORE = "restore the file; a study without decision.json waits for a new decision"


_MAX_EXAMINED = 256
_examined: dict[bytes, None] = {}
"""What `examine` has let pass in this process, by the digest of all files."""


def _examine_once(files: Mapping[str, bytes], study: Path) -> None:
    """Examine these files, unless another site of this process has just received the same ones. Whether they keep the
    limits depends on their bytes alone; what only one site may decide is decided after this."""
    digest = hashlib.sha256(encode(dict(files))).digest()
    if digest not in _examined:
        examine(study)
        while len(_examined) >= _MAX_EXAMINED:
            _examined.pop(next(iter(_examined)), None)
        _examined[digest] = None
