"""Base oblivious transfers of random keys (T. Chou, C. Orlandi, The simplest protocol for oblivious transfer, 2015).

The sender ends with two keys for each transfer, the receiver with the one of its choice. In the subgroup of prime
order of edwards25519, with base point G: the sender offers A = aG; for a choice c the receiver answers B = bG + cA and
keeps the hash of bA; the sender keeps the hashes of aB and a(B − A).

Adversary: either side, semi-honest; the two do not collude. The sender learns nothing of the choices, whatever its
computing power: B is a uniform element of the subgroup for either choice. The receiver learns nothing of the other key
as long as computing Diffie–Hellman secrets is hard in the subgroup and BLAKE2b behaves as a random oracle; this is a
classical assumption, which a quantum computer breaks also for recorded messages. Elements that are not canonical
encodings of points of prime order are refused. The hash covers the session, the place, A and B, so a key of one
session or place is of no use in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_is_valid_point,
    crypto_core_ed25519_scalar_reduce,
    crypto_core_ed25519_sub,
    crypto_scalarmult_ed25519_base_noclamp,
    crypto_scalarmult_ed25519_noclamp,
)

from comity.entropy import Stream, derive
from comity.errors import Malformed

ELEMENT_BYTES = 32
KEY_BYTES = 32


@dataclass(frozen=True)
class Offer:
    """The sender's half: `message` goes to the receiver, whose answer gives the keys, once."""

    session: bytes
    message: bytes
    _secret: bytes = field(repr=False)

    def keys(self, answer: bytes, count: int) -> list[tuple[bytes, bytes]]:
        """Both keys of each of `count` transfers."""
        if len(answer) != count * ELEMENT_BYTES:
            raise Malformed(f"{count} elements of {ELEMENT_BYTES} bytes were expected, found {len(answer)} bytes")
        offset = crypto_scalarmult_ed25519_noclamp(self._secret, self.message)
        pairs = []
        for place in range(count):
            element = _valid(answer[place * ELEMENT_BYTES : (place + 1) * ELEMENT_BYTES])
            zero = crypto_scalarmult_ed25519_noclamp(self._secret, element)
            one = crypto_core_ed25519_sub(zero, offset)
            pairs.append(
                (
                    _key(self.session, place, self.message, element, zero),
                    _key(self.session, place, self.message, element, one),
                )
            )
        return pairs


def offer(session: bytes, seed: bytes) -> Offer:
    """An offer from a secret seed; `session` names the run, the release and the purpose, and is known to both sides."""
    secret = _scalar(Stream(derive(seed, "base ot", "offer", session)))
    return Offer(session, crypto_scalarmult_ed25519_base_noclamp(secret), secret)


def choose(session: bytes, offered: bytes, choices: Sequence[int], seed: bytes) -> tuple[bytes, list[bytes]]:
    """The receiver's answer to an offer, and the key that each choice (0 or 1) gives."""
    base = _valid(offered)
    # Bound to the offer: two answers with the same b to different offers would differ by a multiple of the choice.
    stream = Stream(derive(seed, "base ot", "answer", session, offered))
    elements, keys = [], []
    for place, choice in enumerate(choices):
        secret = _scalar(stream)
        plain = crypto_scalarmult_ed25519_base_noclamp(secret)
        # Both are computed for every choice, so that the time does not tell which one is sent.
        element = (plain, crypto_core_ed25519_add(plain, base))[choice]
        elements.append(element)
        keys.append(_key(session, place, offered, element, crypto_scalarmult_ed25519_noclamp(secret, base)))
    return b"".join(elements), keys


def _scalar(stream: Stream) -> bytes:
    # Of 512 bits, so that the reduction leaves no bias.
    return crypto_core_ed25519_scalar_reduce(stream.bytes(64))


def _valid(element: bytes) -> bytes:
    if len(element) != ELEMENT_BYTES or not crypto_core_ed25519_is_valid_point(element):
        raise Malformed(f"an element of prime order in {ELEMENT_BYTES} bytes was expected, found something else")
    return element


def _key(session: bytes, place: int, offered: bytes, element: bytes, shared: bytes) -> bytes:
    digest = blake2b(digest_size=KEY_BYTES, person=b"comity base ot")
    digest.update(len(session).to_bytes(8, "little") + session + place.to_bytes(8, "little"))
    digest.update(offered + element + shared)
    return digest.digest()
