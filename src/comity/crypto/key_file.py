"""A party's key file: one 32-byte secret, which only its owner can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from comity.crypto.sealing import Identity
from comity.entropy import fresh_seed
from comity.errors import BadInput

_MAGIC = "comity-identity-1:"


def create(path: Path) -> Identity:
    """Creates an identity. Never overwrites a file: messages sealed to its key would be lost."""
    secret = fresh_seed()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise BadInput(f"{path}: this key file already exists; choose another name", code="keys") from None
    except OSError as error:
        raise BadInput(f"{path}: the key file can't be written ({error.strerror})", code="keys") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(_MAGIC + secret.hex() + "\n")
        file.flush()
        os.fsync(file.fileno())
    return Identity(secret)


def load(path: Path) -> Identity:
    """The identity in a file; refuses a file that others can read."""
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise BadInput(f"{path}: others can read this key file; run: chmod 600 {path}", code="keys")
        text = path.read_text("ascii").strip()
    except FileNotFoundError:
        raise BadInput(f"{path}: there is no such key file; make one: comity keys new {path}", code="keys") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: the key file can't be read ({error})", code="keys") from error
    try:
        secret = bytes.fromhex(text.removeprefix(_MAGIC)) if text.startswith(_MAGIC) else b""
    except ValueError:
        secret = b""
    if len(secret) != 32:
        raise BadInput(f"{path}: not a key file of Comity; make one: comity keys new FILE", code="keys")
    return Identity(secret)
