"""The two hash chains of a ledger: one over its entries, one over its commits.

Entries    The head of an entry is SHA-256 over the head before it and the entry's stored texts as canonical JSON (an
           array in the order of `FIELDS`, ASCII, no spaces). The first entry follows a random nonce, which it also
           carries, so no two ledgers share a head.
Commits    Entries cover debits alone. The file also holds replies and secrets of a run: a site that has forgotten an
           answer would give a second one. So every transaction that changes the file is a commit with a number and a
           head, over the commit before it, the last entry, the state of all accounts, and the digests that callers
           noted of their tables.

A head fixes everything before it, so anyone who remembers one notices a later change, deletion or reordering. The
chains hold against someone who edits the file, and against a restored backup once a newer head is shown from outside:
the witness of this machine and the peers remember (ledger, number, head). They do not hold against an owner who
rewrites the file and everything outside it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from comity.errors import Malformed, Refused

_HEAD = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a ledger. `loss` is the exact decimal text, in the unit and relation of the dataset.

    `note`         nonce of a `create`; reason of a `grant` or `write-off`; missing head of a `freeze`; in a `reserve`
                   whose loss was converted, the loss as the study declared it
    `step`         in a `reserve`, the part of the records that the draw reads, empty for all of them
                   (`comity.privacy.parallel`); in a `create`, `simulated` for a ledger without a witness
    `mechanism`    in a `create`, `dataset`, `grant` or `currency`, the currency; the first format had none
    `sensitivity`  in the same entries, the ceiling in that currency after the entry
    """

    seq: int
    kind: str
    dataset: str = ""
    unit: str = ""
    neighbours: str = ""
    mechanism: str = ""
    sensitivity: str = ""
    loss: str = ""
    study: str = ""
    run: str = ""
    release: str = ""
    index: int | None = None
    step: str = ""
    time: str = ""
    note: str = ""
    head: str = ""


FIELDS = tuple(field.name for field in fields(Entry))

Row = tuple[str | int | None, ...]

_NOTE = FIELDS.index("note")
canonical_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


def is_head(text: object) -> bool:
    """Whether `text` has the form of a head: 64 lower-case hexadecimal digits."""
    return isinstance(text, str) and _HEAD.fullmatch(text) is not None


def next_head(previous: str, row: Row) -> str:
    """The head after `row`, which is an entry's fields without its head."""
    return hashlib.sha256(bytes.fromhex(previous) + canonical_json(row).encode("ascii")).hexdigest()


def follow_entries(rows: Iterable[Row], *, where: str, after: tuple[int, str] = (0, "")) -> Iterator[Row]:
    """Yields the entries after checking the number and head of each; refuses the first that does not fit.

    `after` is the number and head of a trusted entry; by default the chain starts at its first entry.
    """
    expected, previous = after
    for row in rows:
        expected += 1
        if expected == 1:
            if row[1] != "create" or not is_head(row[_NOTE]):
                raise _broken_chain(where, 1, "the first entry does not create a ledger")
            previous = str(row[_NOTE])
        if row[0] != expected:
            raise _broken_chain(where, expected, f"found entry {str(row[0])[:20]} in its place")
        head = next_head(previous, row[:-1])
        if head != row[-1]:
            raise _broken_chain(where, expected, "its texts do not give its head")
        yield row
        previous = head
    if expected == 0:
        raise _broken_chain(where, 1, "there are no entries")


def _broken_chain(where: str, seq: int, why: str) -> Refused:
    return Refused(
        f"{where}: the chain of entries breaks at entry {seq}: {why}. The file was changed by something "
        "other than Comity; restore the last good copy and write off what may have been spent since",
        code="chain",
    )


def parse_entry(exported: object, *, where: str) -> Row:
    """The row of an exported entry, which must have exactly the known fields, each of its type."""
    if not isinstance(exported, Mapping) or set(exported) != set(FIELDS):
        raise Malformed(f"{where}: an exported entry has the fields {', '.join(FIELDS)}, found something else")
    values: list[Any] = [exported[name] for name in FIELDS]
    for name, value in zip(FIELDS, values, strict=True):
        whole = isinstance(value, int) and not isinstance(value, bool)
        valid = whole if name == "seq" else (whole or value is None) if name == "index" else isinstance(value, str)
        if not valid:
            raise Malformed(f"{where}: {name} of an exported entry can't be {repr(value)[:80]}")
    return tuple(values)


@dataclass(frozen=True, slots=True)
class CommitHead:
    """Commit number `count` of the ledger with the id `ledger`, and its head."""

    ledger: str
    count: int
    head: str


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit as it is stored. `seq` is the newest entry, `state` the digest of the accounts."""

    count: int
    seq: int
    state: bytes
    notes: bytes
    head: bytes

    def follows(self, before: bytes, entry_head: str) -> bool:
        return self.head == commit_head(before, self.count, entry_head, self.state, self.notes)


def commit_head(before: bytes, count: int, entry_head: str, state: bytes, notes: bytes) -> bytes:
    text = b"comity commit %d\n" % count
    return hashlib.sha256(text + before + bytes.fromhex(entry_head) + state + notes).digest()


def notes_digest(notes: Iterable[bytes]) -> bytes:
    """Of the digests that callers noted, in order; empty when they noted none."""
    listed = list(notes)
    if not listed:
        return b""
    return hashlib.sha256(b"".join(len(note).to_bytes(4, "big") + note for note in listed)).digest()
