"""Shamir's secret sharing of 32-byte secrets over the prime field of order 2^521 − 1.

Promise: any `threshold` shares give the secret; fewer are independent of it, at any computing power (A. Shamir, How to
share a secret, 1979). Shares are not authenticated: they travel sealed and signed. A secret fills 256 of 521 bits, so
shares that do not belong together are detected, except with probability 2^-265, and a wrong share among enough others
can be left out.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import combinations, islice
from math import prod
from typing import TYPE_CHECKING

from comity.errors import Malformed

# gmpy2 is imported where it is used: it takes 50 ms, which a site that waits for its first study does not need.
if TYPE_CHECKING:
    import gmpy2

PRIME = 2**521 - 1
SHARE_BYTES = 66
SECRET_BYTES = 32
_MAX_SUBSETS = 5000
"""Subsets to try before blaming the party that shared the secret."""


def split(secret: bytes, threshold: int, points: Iterable[int]) -> dict[int, bytes]:
    """Shares of `secret` at distinct positive points."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret of {SECRET_BYTES} bytes was expected, found {len(secret)}")
    places = list(points)
    if len(set(places)) != len(places) or any(not 0 < x < PRIME for x in places) or not 0 < threshold <= len(places):
        raise ValueError(f"{threshold} of {len(places)} distinct positive points can't share a secret")
    import gmpy2

    prime = gmpy2.mpz(PRIME)
    coefficients = [gmpy2.mpz(secrets.randbelow(PRIME)) for _ in range(threshold - 1)]
    coefficients.append(gmpy2.mpz(int.from_bytes(secret, "big")))
    shares = {}
    for x in places:
        y = gmpy2.mpz(0)
        for coefficient in coefficients:
            y = (y * x + coefficient) % prime
        shares[x] = int(y).to_bytes(SHARE_BYTES, "big")
    return shares


@lru_cache(maxsize=256)
def _weights(points: tuple[int, ...]) -> tuple[gmpy2.mpz, ...]:
    """The weight of each share at zero: Π x_j / (x_j − x_i) over the other points. Every secret of a sum has the same
    points."""
    import gmpy2

    everything = prod(points)
    out = []
    for x in points:
        below = prod(other - x for other in points if other != x)
        out.append(gmpy2.mpz(everything // x) * gmpy2.invert(gmpy2.mpz(below % PRIME), PRIME) % PRIME)
    return tuple(out)


def join(shares: Mapping[int, bytes]) -> bytes:
    """The secret from exactly `threshold` shares (Lagrange interpolation at zero)."""
    import gmpy2

    total = gmpy2.mpz(0)
    for weight, share in zip(_weights(tuple(shares)), shares.values()):
        total += weight * int.from_bytes(share, "big")
    value = int(total % PRIME)
    if value >> (8 * SECRET_BYTES):
        raise Malformed("the shares do not belong to one secret", code="shares")
    return value.to_bytes(SECRET_BYTES, "big")


def rebuild(shares: Mapping[int, bytes], threshold: int) -> tuple[bytes, frozenset[int]]:
    """The secret that `threshold` of these shares agree on, and the points whose shares do not belong to it.

    Malformed if no such subset was found: then the party that shared the secret is to blame, or too many holders.
    """
    points = tuple(shares)
    for chosen in islice(_subsets(points, threshold), _MAX_SUBSETS):
        try:
            secret = join({x: shares[x] for x in chosen})
        except Malformed:
            continue
        return secret, frozenset() if chosen == points[:threshold] else frozenset(_foreign_points(shares, chosen))
    raise Malformed("no threshold of the shares belongs to one secret", code="shares")


def _subsets(points: tuple[int, ...], threshold: int) -> Iterator[tuple[int, ...]]:
    """The first `threshold` points, then those of the first `threshold` + 1 without one of them, and so on."""
    for missing in range(len(points) - threshold + 1):
        window = points[: threshold + missing]
        for left_out in combinations(window[:-1], missing):
            yield tuple(x for x in window if x not in left_out)


def _foreign_points(shares: Mapping[int, bytes], good: Collection[int]) -> Iterator[int]:
    """Points whose share is not on the polynomial of the good ones: swapping it in gives no secret, or another."""
    known = tuple(good)
    secret = join({x: shares[x] for x in known})
    for x in shares:
        if x not in good:
            try:
                if join({y: shares[y] for y in (*known[1:], x)}) == secret:
                    continue
            except Malformed:
                pass
            yield x
