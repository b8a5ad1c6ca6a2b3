"""All entries of a ledger as one JSON document, which anybody can check without the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TextIO

from comity.errors import BadInput, Refused
from comity.privacy.ledger.chain import FIELDS, Row, row_from
from comity.privacy.ledger.check import replayed
from comity.privacy.ledger.reading import Verified
from comity.privacy.ledger.schema import sound

_FORMATS = ("comity-ledger-1", "comity-ledger-2")


def write_entries(rows: Iterable[Row], file: TextIO) -> tuple[int, str]:
    """One line each; how many there are, and the last head."""
    count, head = 0, ""
    file.write(f'{{"format": "{_FORMATS[-1]}", "entries": [')
    for row in rows:
        file.write((",\n" if count else "\n") + json.dumps(dict(zip(FIELDS, row, strict=True))))
        count, head = count + 1, str(row[-1])
    file.write(f'\n], "head": "{head}"}}\n')
    return count, head


def verify_export(exported: object) -> Verified:
    """Checks an exported ledger: its chain, and that each entry was allowed after those before it."""
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
    return Verified(count, head, replay.frozen)
