"""Paillier decryption that needs every one of K parties.

Construction: the exponent d with d ≡ 0 mod λ and d ≡ 1 mod n, where λ = lcm(p − 1, q − 1), satisfies c^d = 1 + n·m
modulo n² (Damgård, Jurik, Nielsen 2010, with s = 1 and all parties needed). Shares d_1 … d_K are uniform with sum d
modulo n·λ, the exponent of the group; a party gives c^{d_k}, and the product of all K shows m.

Key set-up: a named *dealer*, outside the computation and trusted only for this. It makes the key, sends each party its
share sealed to that party, and forgets the key when its process ends. A dealer that keeps the key, or colludes with
anyone who sees ciphertexts, reads everything. (Parties can also make n among themselves by a long protocol; not here.)

Adversary: semi-honest, up to K − 1 of the parties colluding, with the coordinator too. Any K − 1 shares are uniform
below n·λ and so, given n, within (K − 1)·2^(2 − bits/2) in distribution of being independent of the primes and of d, at
any computing power. From the partial decryptions of c they learn m and nothing else: the last one equals (1 + n·m) over
the product of theirs.
Learned: the party that combines learns m; a share holder learns n, and m only if it combines, or if a party sends it m.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from gmpy2 import invert, lcm, mpz, powmod_sec

from comity.crypto.paillier.cryptosystem import Ciphertext, PrivateKey, PublicKey
from comity.errors import Malformed, Refused


@dataclass(frozen=True)
class KeyShare:
    """The share of party number `party` (from 0) of `parties`."""

    public: PublicKey
    party: int
    parties: int
    exponent: mpz = field(repr=False)

    def partial(self, ciphertext: Ciphertext) -> bytes:
        """This party's part of the decryption of one ciphertext, `ciphertext_bytes` bytes."""
        value = powmod_sec(ciphertext.value, self.exponent, self.public.square)
        return bytes(value.to_bytes(self.public.ciphertext_bytes, "little"))

    def to_bytes(self) -> bytes:
        """party, parties (4 bytes each), the exponent, the public key; little-endian. A secret: sealed to its party."""
        head = self.party.to_bytes(4, "little") + self.parties.to_bytes(4, "little")
        exponent = bytes(self.exponent.to_bytes(self.public.ciphertext_bytes, "little"))
        return head + exponent + self.public.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes, public: PublicKey) -> KeyShare:
        """A share of the key that the study names."""
        size = public.ciphertext_bytes
        if len(data) != 8 + size + len(public.to_bytes()) or data[8 + size :] != public.to_bytes():
            raise Malformed("a share of another Paillier key, or of another length, was found", code="key-share")
        party, parties = int.from_bytes(data[:4], "little"), int.from_bytes(data[4:8], "little")
        exponent = mpz.from_bytes(data[8 : 8 + size], "little")
        if parties < 2 or party >= parties or not 0 < exponent < public.square:
            raise Malformed("a share of a Paillier key is out of range", code="key-share")
        return cls(public, party, parties, exponent)


def split(private: PrivateKey, parties: int) -> tuple[KeyShare, ...]:
    """Fresh shares of a key. A holder of `private` still decrypts alone."""
    if parties < 2:
        raise ValueError(f"at least two parties share a key, not {parties}")
    n = private.public.n
    order = lcm(private.p - 1, private.q - 1)
    exponent, modulus = order * invert(order, n), order * n
    while True:
        masks = [mpz(1 + secrets.randbelow(int(modulus) - 1)) for _ in range(parties - 1)]
        last = (exponent - sum(masks)) % modulus
        # GMP's guarded exponentiation takes no zero, which comes up with probability 2^(1 − 2·bits).
        if last:
            break
    return tuple(KeyShare(private.public, i, parties, share) for i, share in enumerate([*masks, last]))


def combine(public: PublicKey, parties: int, partials: Mapping[int, bytes]) -> int:
    """The plaintext from the partial decryptions of all parties, by party number.

    Parts that are missing, of different ciphertexts, or altered (other than by a power of 1 + n) are refused.
    """
    if set(partials) != set(range(parties)):
        missing = sorted(set(range(parties)) - set(partials))
        raise Refused(
            f"all {parties} parties must decrypt: {missing} are missing, {len(partials)} parts came", code="missing"
        )
    product = prod((public.read_unit(part, "partial decryption") for part in partials.values()), start=mpz(1))
    quotient, remainder = divmod(product % public.square, public.n)
    if remainder != 1:
        raise Malformed("the partial decryptions do not belong to one ciphertext and one key", code="partial")
    return public.decode(quotient)
