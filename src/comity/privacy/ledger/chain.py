"""Entries of a ledger and the hash chain over them.

The head of an entry is SHA-256 over the head before it and the entry's stored texts as canonical JSON (an
array in the order of `FIELDS`, ASCII, no spaces). The first entry follows a random nonce, which it also
carries, so no two ledgers share a head. A head therefore fixes everything that came before it: whoever
remembers one notices any later change, deletion or reordering. The chain holds against someone who edits the
file and against a restored backup once somebody outside shows a newer head; it can't tell an owner who
rewrites the whole file and everything outside.
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

    `note` is the nonce of a `create`, the reason of a `grant` or `write-off`, the missing head of a `freeze`,
    and in a `reserve` the loss as the study declared it when it had to be converted. The `step` of a `reserve` is the
    part of the records that the draw reads, and empty where that may be all of them (`comity.privacy.parallel`).
    Entries that grant (`create`, `dataset`, `grant`, `currency`) name the currency as their `mechanism` and the ceiling
    in it, after them, as their `sensitivity`; the first format had neither. A `create` whose `step` is
    `simulated` has no witness.
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
_canonical = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


def is_head(text: object) -> bool:
    """Whether `text` has the form of a head: 64 lower-case hexadecimal digits."""
    return isinstance(text, str) and _HEAD.fullmatch(text) is not None


def next_head(previous: str, row: Row) -> str:
    """The head after `row`, which is an entry's fields without its head."""
    return hashlib.sha256(bytes.fromhex(previous) + _canonical(row).encode("ascii")).hexdigest()


def follow(rows: Iterable[Row], *, where: str, after: tuple[int, str] = (0, "")) -> Iterator[Row]:
    """The entries' rows again, each with its number and head checked; refuses at the first that does not fit.

    `after` are the number and head of an entry that is trusted, if not the first one is to be followed.
    """
    expected, previous = after
    for row in rows:
        expected += 1
        if expected == 1:
            if row[1] != "create" or not is_head(row[_NOTE]):
                raise _broken(where, 1, "the first entry does not create a ledger")
            previous = str(row[_NOTE])
        if row[0] != expected:
            raise _broken(where, expected, f"found entry {str(row[0])[:20]} in its place")
        head = next_head(previous, row[:-1])
        if head != row[-1]:
            raise _broken(where, expected, "its texts do not give its head")
        yield row
        previous = head
    if expected == 0:
        raise _broken(where, 1, "there are no entries")


def _broken(where: str, seq: int, why: str) -> Refused:
    return Refused(
        f"{where}: the chain of entries breaks at entry {seq}: {why}. The file was changed by something "
        "other than Comity; restore the last good copy and write off what may have been spent since",
        code="chain",
    )


def row_from(fields_of_one: object, *, where: str) -> Row:
    """An entry of an exported ledger; refused unless it has exactly the known fields, each of its type."""
    if not isinstance(fields_of_one, Mapping) or set(fields_of_one) != set(FIELDS):
        raise Malformed(f"{where}: an exported entry has the fields {', '.join(FIELDS)}, found something else")
    values: list[Any] = [fields_of_one[name] for name in FIELDS]
    for name, value in zip(FIELDS, values, strict=True):
        whole = isinstance(value, int) and not isinstance(value, bool)
        fine = whole if name == "seq" else (whole or value is None) if name == "index" else isinstance(value, str)
        if not fine:
            raise Malformed(f"{where}: {name} of an exported entry can't be {repr(value)[:80]}")
    return tuple(values)
