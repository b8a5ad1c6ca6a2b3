"""Passwords of the people who use a console, kept as scrypt hashes.

Promise    A stolen file of people does not reveal a password unless it is guessed, and each guess takes 64 MiB of
           memory. Comparing takes the same time whether or not the name is known.
Not        against a password that is on a list of common ones: a password has at least 12 characters, and nothing else
           is asked of it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass
from threading import Lock

from comity.errors import BadInput

MIN_CHARACTERS, MAX_CHARACTERS = 12, 200
_MAX_COST, _MAX_PARALLEL = 1 << 18, 8
_KEY_BYTES, _SALT_BYTES = 32, 16
# One hash at a time: many at once would take the memory that the site's own process needs.
_one_at_a_time = Lock()


@dataclass(frozen=True)
class Cost:
    """The parameters of scrypt: 128 · block · cost bytes of memory."""

    cost: int = 1 << 16
    block: int = 8
    parallel: int = 2


COST = Cost()


def hash_password(password: str, cost: Cost = COST) -> str:
    """A text to keep: the parameters, a fresh salt and the hash. Refuses a password of an unsuitable length."""
    if not MIN_CHARACTERS <= len(password) <= MAX_CHARACTERS:
        raise BadInput(
            f"a password has {MIN_CHARACTERS} to {MAX_CHARACTERS} characters; a few random words are easy to remember",
            key="password",
        )
    salt = os.urandom(_SALT_BYTES)
    return f"scrypt${cost.cost}${cost.block}${cost.parallel}${salt.hex()}${_derive(password, salt, cost).hex()}"


def verify_password(password: str, kept: str | None) -> bool:
    """Whether this is the password. Without a kept hash the work is the same, and the answer is no."""
    if len(password) > MAX_CHARACTERS:
        return False
    if kept is None:
        _derive(password, bytes(_SALT_BYTES), COST)
        return False
    try:
        kind, *parameters, salt, key = kept.split("$")
        cost = Cost(*map(int, parameters))
        is_known = kind == "scrypt" and 2 <= cost.cost <= _MAX_COST and cost.parallel <= _MAX_PARALLEL
        found = _derive(password, bytes.fromhex(salt), cost) if is_known and cost.block == COST.block else b""
        return hmac.compare_digest(found, bytes.fromhex(key)) and bool(found)
    except (ValueError, TypeError):
        return False


def _derive(password: str, salt: bytes, cost: Cost) -> bytes:
    with _one_at_a_time:
        return hashlib.scrypt(
            password.encode("utf-8", "surrogatepass"),
            salt=salt,
            n=cost.cost,
            r=cost.block,
            p=cost.parallel,
            maxmem=2 * 128 * cost.block * cost.cost,
            dklen=_KEY_BYTES,
        )
