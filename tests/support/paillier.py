"""Paillier keys, made once per process."""

from __future__ import annotations

from functools import cache

from comity.crypto.paillier.cryptosystem import PrivateKey


@cache
def make_private_key(number: int = 0) -> PrivateKey:
    """A key of 2048 bits; another one for another number."""
    return PrivateKey.generate(2048)
