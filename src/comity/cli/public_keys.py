"""Read public keys from a file as `comity keys show` prints them, or from a key file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from comity.errors import BadInput

if TYPE_CHECKING:
    from comity.crypto.sealing import PublicIdentity

TEXTS = ("sign", "mlkem", "x25519")
_KEY_FILE = b"comity-identity-"


def key_texts(path: Path, *, key: str) -> dict[str, str]:
    """The three public keys in a TOML file, at any depth. `key` is the option that named the file."""
    from comity.untrusted.toml import BadToml, tables_of

    try:
        found = _keys_in(tables_of(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, BadToml) as error:
        raise BadInput(f"{path}: can't be read as TOML ({error}); write it with: comity keys show", key=key) from error
    if found is None:
        raise BadInput(f"{path}: has no sign, mlkem and x25519; write it with: comity keys show", key=key)
    return found


def read_public_keys(path: Path, *, key: str) -> PublicIdentity:
    """The public identity in a key file or in a file of public keys."""
    from comity.crypto import key_file
    from comity.crypto.sealing import PublicIdentity

    try:
        is_key_file = path.read_bytes()[: len(_KEY_FILE)] == _KEY_FILE
    except OSError as error:
        raise BadInput(f"{path}: can't be read ({error.strerror}); give a file of keys", key=key) from error
    if is_key_file:
        return key_file.load(path).public
    try:
        return PublicIdentity.from_texts(key_texts(path, key=key))
    except ValueError as error:
        raise BadInput(
            f"{path}: sign, mlkem and x25519 are hexadecimal text; write it with: comity keys show", key=key
        ) from error


def _keys_in(table: Any) -> dict[str, str] | None:
    """The public keys in a table or in one nested in it."""
    if not isinstance(table, dict):
        return None
    if set(TEXTS) <= set(table):
        return {name: str(table[name]) for name in TEXTS}
    return next((found for inner in table.values() if (found := _keys_in(inner)) is not None), None)
