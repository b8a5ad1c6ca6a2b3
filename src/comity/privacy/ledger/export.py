"""All entries of a ledger as one JSON document, which anybody can check without the ledger.

What a check shows:

    without a signature    the entries fit together. Whoever can write a file can leave entries out, change a grant and
                           compute the heads anew: it is no evidence of what an owner spent.
    with the owner's       these were all entries of the ledger at the stated time, as the holder of that key says:
    signature              none was removed, changed or cut off at the end. Later entries are not in it, and an owner
                           that rewrites its whole ledger signs what it has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TextIO

from comity.errors import BadInput, Malformed, Refused
from comity.privacy.ledger.chain import FIELDS, Row, row_from
from comity.privacy.ledger.check import replayed
from comity.privacy.ledger.reading import Verified
from comity.privacy.ledger.schema import sound

_FORMATS = ("comity-ledger-1", "comity-ledger-2")


Sign = Callable[[bytes], bytes]
"""The signature of a statement."""
Check = Callable[[bytes, bytes], None]
"""Raises Malformed where the first is no signature of the second."""


def statement_of(count: int, head: str, exported: str) -> bytes:
    """What is signed. The head fixes every entry, and the first one names the ledger."""
    page = {"format": _FORMATS[-1], "entries": count, "head": head, "exported": exported}
    return json.dumps(page, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def write_entries(rows: Iterable[Row], file: TextIO, sign: Sign | None = None) -> tuple[int, str]:
    """One line each, with the signature at the end where there is one; how many there are, and the last head."""
    count, head = 0, ""
    file.write(f'{{"format": "{_FORMATS[-1]}", "entries": [')
    for row in rows:
        file.write((",\n" if count else "\n") + json.dumps(dict(zip(FIELDS, row, strict=True))))
        count, head = count + 1, str(row[-1])
    end = {"head": head, "exported": datetime.now(UTC).isoformat(timespec="seconds")}
    if sign is not None:
        end["signature"] = sign(statement_of(count, head, end["exported"])).hex()
    file.write("\n], " + json.dumps(end)[1:] + "\n")
    return count, head


def verify_export(exported: object, check: Check | None = None) -> Verified:
    """Checks an exported ledger: its chain, and that each entry was allowed after those before it; with `check`, also
    that the holder of that key signed it."""
    where = "export"
    if not isinstance(exported, Mapping) or exported.get("format") not in _FORMATS:
        raise BadInput(f"expected an exported ledger of format {' or '.join(_FORMATS)}: export it again", code="export")
    if not isinstance(exported.get("entries"), list):
        raise BadInput(
            "expected an exported ledger, found one without a list of entries: export it again", code="export"
        )
    rows = [row_from(fields, where=where) for fields in exported["entries"]]
    with sound(where):
        replay, count, head = replayed(rows, where)
    if exported.get("head") != head:
        raise Refused("export: the last head is not the one stated, so entries are missing at the end", code="chain")
    found = Verified(count, head, replay.frozen)
    return found if check is None else _signed(found, exported, check)


def _signed(found: Verified, exported: Mapping[str, object], check: Check) -> Verified:
    when, signature = exported.get("exported"), exported.get("signature")
    if signature is None:
        raise Refused(
            "export: carries no signature, so that entries may have been left out; let its owner export it with --keys",
            code="signature",
        )
    try:
        if exported["format"] != _FORMATS[-1] or not isinstance(when, str) or not isinstance(signature, str):
            raise Malformed("not of the form that is signed")
        check(bytes.fromhex(signature), statement_of(found.entries, found.head, when))
    except (Malformed, ValueError) as error:
        raise Refused(
            "export: is not what its owner signed: entries were changed, removed or cut off, or another key signed it; "
            "get it from its owner again",
            code="signature",
        ) from error
    return replace(found, signed=True, exported=when)
