"""A party's key file: one 32-byte secret, which only its owner can read.

All keys of the party follow from it: those that studies pin, and the one that identifies the party to a relay.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from comity.crypto.relay_key import RelayKey
from comity.crypto.sealing import Identity, relay_seed
from comity.entropy import fresh_seed
from comity.errors import BadInput
from comity.files import make_folder

_MAGIC = "comity-identity-1:"


def create(path: Path) -> Identity:
    """Creates an identity. Never overwrites a file: messages sealed to its key would be lost."""
    secret = fresh_seed()
    try:
        make_folder(path.parent)
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
    return Identity(_read(path))


def load_relay_key(path: Path) -> RelayKey:
    """The relay key in a file. The process that talks to a relay needs no other key and keeps none."""
    return RelayKey(relay_seed(_read(path)))


def _read(path: Path) -> bytes:
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
    return secret
