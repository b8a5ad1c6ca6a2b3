"""Shamir's secret sharing of 32-byte secrets over the prime field of order 2^521 − 1.

Promise: any `threshold` shares give the secret; fewer are independent of it, whatever computing power looks at them
(A. Shamir, How to share a secret, 1979). Shares are not authenticated: they travel sealed and signed.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping

from comity.errors import Malformed

PRIME = 2**521 - 1
SHARE_BYTES = 66
SECRET_BYTES = 32


def split(secret: bytes, threshold: int, points: Iterable[int]) -> dict[int, bytes]:
    """Shares of `secret` at distinct positive points."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret of {SECRET_BYTES} bytes was expected, found {len(secret)}")
    places = list(points)
    if len(set(places)) != len(places) or any(not 0 < x < PRIME for x in places) or not 0 < threshold <= len(places):
        raise ValueError(f"{threshold} of {len(places)} distinct positive points can't share a secret")
    coefficients = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    shares = {}
    for x in places:
        y = 0
        for coefficient in reversed(coefficients):
            y = (y * x + coefficient) % PRIME
        shares[x] = y.to_bytes(SHARE_BYTES, "big")
    return shares


def join(shares: Mapping[int, bytes]) -> bytes:
    """The secret from exactly `threshold` shares (Lagrange interpolation at zero)."""
    total = 0
    for x, share in shares.items():
        numerator = denominator = 1
        for other in shares:
            if other != x:
                numerator = numerator * other % PRIME
                denominator = denominator * (other - x) % PRIME
        y = int.from_bytes(share, "big")
        total = (total + y * numerator * pow(denominator, -1, PRIME)) % PRIME
    if total >> (8 * SECRET_BYTES):
        raise Malformed("the shares do not belong to one secret", code="shares")
    return total.to_bytes(SECRET_BYTES, "big")
