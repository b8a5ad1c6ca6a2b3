"""An exported ledger that its owner signed: nothing can be removed from it, added to it or cut off it unnoticed."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from comity.crypto.sealing import Identity
from comity.errors import BadInput, Refused
from comity.privacy.ledger import Draw, Ledger, verify_export
from comity.privacy.ledger.chain import FIELDS, next_head
from comity.privacy.ledger.verification import export_statement
from comity.privacy.loss import GDP, Approx
from comity.privacy.unit import Neighbours, Unit
from comity.study.results.signatures import export_checker, export_signer

OWNER = Identity(b"o" * 32)


def spent(epsilon: float) -> Ledger:
    grant = Approx(epsilon, 1e-5)
    made = Ledger.in_memory(dataset="patients", grant=grant, unit=Unit.RECORD, neighbours=Neighbours.REPLACE)
    for run in ("first", "second"):
        draw = Draw("model", 0, GDP(0.1), "Gaussian", 1.0)
        made.reserve(study="fit", run=run, draws=[draw], unit=Unit.RECORD, neighbours=Neighbours.REPLACE)
        made.draw(run=run, release="model", index=0, step="fit")
        made.close(run)
    return made


@pytest.fixture
def ledger() -> Ledger:
    return spent(3)


def exported(ledger: Ledger, tmp_path: Path, *, keys: Identity | None = OWNER) -> Any:
    ledger.export(tmp_path / "all.json", sign=None if keys is None else export_signer(keys))
    return json.loads((tmp_path / "all.json").read_text())


def rechained(page: Any, entries: list[Any]) -> Any:
    """As a forger writes it: numbers and heads anew."""
    previous, out = entries[0]["note"], []
    for seq, entry in enumerate(entries, start=1):
        row = {**entry, "seq": seq}
        previous = next_head(previous, tuple(row[name] for name in FIELDS[:-1]))
        out.append({**row, "head": previous})
    return {**page, "entries": out, "head": previous}


def forged(page: Any) -> dict[str, Any]:
    """What verifies without a signature: a fit less, a larger grant, an earlier end."""
    entries = page["entries"]
    first = [one for one in entries if one["run"] != "second"]
    more = io.StringIO()
    spent(9).export(more)
    return {
        "a fit is removed": rechained(page, first),
        "the grant is raised": {**page, **json.loads(more.getvalue())},
        "the end is cut off": {**page, "entries": entries[:1], "head": entries[0]["head"]},
    }


def test_an_export_that_its_owner_signed_verifies_with_the_owners_key(ledger: Ledger, tmp_path: Path) -> None:
    page = exported(ledger, tmp_path)
    found = verify_export(page, check=export_checker(OWNER.public))
    assert found.signed and found.exported == page["exported"] and found.entries == len(page["entries"])
    assert not verify_export(page).signed, "without a key nothing was checked"


@pytest.mark.parametrize("how", ["a fit is removed", "the grant is raised", "the end is cut off"])
def test_a_forged_export_verifies_only_without_the_key(ledger: Ledger, tmp_path: Path, how: str) -> None:
    page = forged(exported(ledger, tmp_path))[how]
    assert verify_export(page).head != ledger.head(), "the chain alone does not show it"
    with pytest.raises(Refused, match="not what its owner signed") as error:
        verify_export(page, check=export_checker(OWNER.public))
    assert error.value.code == "signature"


@pytest.mark.parametrize("key", ["exported", "head", "format", "signature"])
def test_every_word_of_the_end_is_signed(ledger: Ledger, tmp_path: Path, key: str) -> None:
    page = exported(ledger, tmp_path)
    other = {"format": "comity-ledger-1", "signature": "00" * 64, "exported": "2020-01-01T00:00:00+00:00"}
    page[key] = other.get(key, "0" * 64)
    with pytest.raises((Refused, BadInput)):
        verify_export(page, check=export_checker(OWNER.public))


def test_another_key_or_none_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    page = exported(ledger, tmp_path)
    with pytest.raises(Refused, match="not what its owner signed"):
        verify_export(page, check=export_checker(Identity(b"x" * 32).public))
    # A key that comes with the export vouches for nothing.
    own = exported(ledger, tmp_path, keys=Identity(b"x" * 32))
    with pytest.raises(Refused):
        verify_export(own, check=export_checker(OWNER.public))
    with pytest.raises(Refused, match="has no signature"):
        verify_export(exported(ledger, tmp_path, keys=None), check=export_checker(OWNER.public))
    for junk in (3, "zz", "", None, ["00"]):
        with pytest.raises(Refused):
            verify_export({**page, "signature": junk}, check=export_checker(OWNER.public))


def test_a_signature_of_something_else_is_none_of_an_export(ledger: Ledger, tmp_path: Path) -> None:
    page = exported(ledger, tmp_path)
    raw = export_statement(len(page["entries"]), page["head"], page["exported"])
    page["signature"] = OWNER.sign(raw).hex()
    with pytest.raises(Refused):
        verify_export(page, check=export_checker(OWNER.public))
