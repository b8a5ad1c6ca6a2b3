"""Many small integers in one Paillier plaintext.

A plaintext is the integer Σ v_i · 2^(width·i) with |v_i| < 2^(value_bits − 1). Each slot has headroom for `terms`
summands, so slots never overflow into their neighbours. A vector counts its load: the number of fresh vectors that were
added, where a factor k counts |k| times. The load is public, and an operation that would exceed `terms` is refused
before it is computed. Encryption refuses values out of range, decoding refuses slots beyond what the load allows.

Adversary, assumption and what each participant learns are those of `cryptosystem`; length and load are public.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import index

from gmpy2 import mpz, pack, unpack

from comity.crypto.paillier.cryptosystem import Ciphertext, PrivateKey, PublicKey
from comity.errors import Malformed


@dataclass(frozen=True)
class PackedVector:
    """Encryptions of `length` integers, slots filled in order."""

    ciphertexts: tuple[Ciphertext, ...]
    length: int
    load: int


@dataclass(frozen=True)
class Packing:
    """Vectors of signed integers of `value_bits` bits (the most negative one excluded), up to `terms` of them added."""

    key: PublicKey
    value_bits: int
    terms: int

    def __post_init__(self) -> None:
        if self.value_bits < 2 or self.terms < 1 or self.width > self.key.bits - 2:
            raise ValueError(
                f"values of {self.value_bits} bits with {self.terms} terms do not fit a key of {self.key.bits} bits"
            )

    @property
    def width(self) -> int:
        """Bits of a slot: terms · (2^(value_bits−1) − 1) < 2^(width−1)."""
        return self.value_bits + (self.terms - 1).bit_length()

    @cached_property
    def slots(self) -> int:
        """Slots in a plaintext: the packed integer stays below 2^(bits−3) < n/3."""
        return (self.key.bits - 2) // self.width

    @property
    def limit(self) -> int:
        """The largest absolute value of a fresh value."""
        return (1 << (self.value_bits - 1)) - 1

    def ciphertexts(self, length: int) -> int:
        """How many ciphertexts a vector of this length takes."""
        return -(-length // self.slots)

    def encrypt(self, values: Iterable[int]) -> PackedVector:
        numbers = [index(value) for value in values]
        plaintexts = self.pack(numbers)
        return PackedVector(tuple(map(self.key.encrypt, plaintexts)), len(numbers), 1)

    def add(self, first: PackedVector, *others: PackedVector) -> PackedVector:
        if any(other.length != first.length for other in others):
            raise Malformed(f"packed vectors of one length ({first.length}) were expected", code="shape")
        load = self._require_load(first.load + sum(other.load for other in others))
        columns = zip(first.ciphertexts, *(other.ciphertexts for other in others), strict=True)
        return PackedVector(tuple(self.key.add(*column) for column in columns), first.length, load)

    def multiply(self, vector: PackedVector, factor: int) -> PackedVector:
        """Every value times one signed integer."""
        load = self._require_load(vector.load * max(abs(index(factor)), 1))
        return PackedVector(tuple(self.key.multiply(c, factor) for c in vector.ciphertexts), vector.length, load)

    def rerandomise(self, vector: PackedVector) -> PackedVector:
        return PackedVector(tuple(map(self.key.rerandomise, vector.ciphertexts)), vector.length, vector.load)

    def decrypt(self, key: PrivateKey, vector: PackedVector) -> list[int]:
        return self.unpack([key.decrypt(c) for c in vector.ciphertexts], vector.length, vector.load)

    def write(self, vector: PackedVector) -> bytes:
        """The ciphertexts one after the other. Both sides know length and load from the protocol."""
        return b"".join(map(self.key.write, vector.ciphertexts))

    def read(self, data: bytes, length: int, load: int = 1) -> PackedVector:
        """A vector of the declared length and load."""
        size = self.key.ciphertext_bytes
        if len(data) != size * self.ciphertexts(length):
            raise Malformed(
                f"{size * self.ciphertexts(length)} bytes were expected for {length} packed values, found {len(data)}"
            )
        starts = range(0, len(data), size)
        ciphertexts = tuple(self.key.read(data[start : start + size]) for start in starts)
        return PackedVector(ciphertexts, length, self._require_load(load))

    def pack(self, values: Sequence[int]) -> list[int]:
        """The plaintexts of a vector; a value out of range is refused."""
        if values and max(max(values), -min(values)) > self.limit:
            raise Malformed(f"a value to be packed has more than {self.value_bits} bits with its sign", code="overflow")
        half = 1 << (self.width - 1)
        blocks = (values[start : start + self.slots] for start in range(0, len(values), self.slots))
        return [int(pack([value + half for value in block], self.width) - self._middle(len(block))) for block in blocks]

    def unpack(self, plaintexts: Sequence[int], length: int, load: int) -> list[int]:
        """The vector from its decrypted plaintexts; a slot beyond what the load allows is refused."""
        if len(plaintexts) != self.ciphertexts(length):
            raise Malformed(
                f"{self.ciphertexts(length)} plaintexts were expected, found {len(plaintexts)}", code="shape"
            )
        half, values = 1 << (self.width - 1), []
        for block, plaintext in enumerate(plaintexts):
            size = min(self.slots, length - block * self.slots)
            shifted = mpz(plaintext) + self._middle(size)
            if shifted < 0 or shifted.bit_length() > size * self.width:
                raise Malformed("a packed plaintext exceeds its slots", code="overflow")
            digits = unpack(shifted, self.width)
            values += [int(digit) - half for digit in digits] + [-half] * (size - len(digits))
        if values and max(max(values), -min(values)) > self._require_load(load) * self.limit:
            raise Malformed(f"a packed slot exceeds what {load} terms can reach", code="overflow")
        return values

    def _middle(self, size: int) -> mpz:
        """2^(width−1) in each of `size` slots: added, it makes every slot non-negative."""
        return ((mpz(1) << (self.width * size)) - 1) // ((mpz(1) << self.width) - 1) << (self.width - 1)

    def _require_load(self, load: int) -> int:
        if not 1 <= load <= self.terms:
            raise Malformed(f"slots with room for {self.terms} terms can't hold {load}", code="overflow")
        return load
