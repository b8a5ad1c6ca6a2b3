"""Public keys in a file, as `comity keys show` prints them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comity.errors import BadInput

if TYPE_CHECKING:
    from comity.crypto.sealing.sealed import PublicIdentity

TEXTS = ("sign", "mlkem", "x25519")


def key_texts(path: Path, *, key: str) -> dict[str, str]:
    """The three public keys of a file, as texts. `key` is the option that named the file."""
    try:
        found = _keys_in(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: can't be read as TOML ({error}); write it with: comity keys show", key=key) from error
    if found is None:
        raise BadInput(f"{path}: holds no sign, mlkem and x25519; write it with: comity keys show", key=key)
    return found


def read_public_keys(path: Path, *, key: str) -> PublicIdentity:
    from comity.crypto.sealing.sealed import PublicIdentity

    try:
        return PublicIdentity.from_texts(key_texts(path, key=key))
    except ValueError as error:
        raise BadInput(
            f"{path}: sign, mlkem and x25519 are hexadecimal text; write it with: comity keys show", key=key
        ) from error


def _keys_in(table: Any) -> dict[str, str] | None:
    """The public keys in a table, or in one inside it."""
    if not isinstance(table, dict):
        return None
    if set(TEXTS) <= set(table):
        return {name: str(table[name]) for name in TEXTS}
    return next((found for inner in table.values() if (found := _keys_in(inner)) is not None), None)
