"""Paillier encryption: sums and known multiples of encrypted integers, which only the holder of the key can read.

Construction: P. Paillier, Public-key cryptosystems based on composite degree residuosity classes (1999), with g = 1 + n
and the randomness of I. Damgård, M. Jurik, J. B. Nielsen, A generalization of Paillier's public-key system with
applications to electronic voting (2010): n = p·q with p ≡ q ≡ 3 (mod 4) and gcd(p − 1, q − 1) = 2, h = −x² mod n, and
Enc(m) = (1 + n·m) · (h^n)^r mod n² with r of half the bits of n. Fixed-base tables give the powers, the Chinese
remainder theorem the decryption.

Assumptions: deciding n-th residues modulo n² is hard, and powers of h with half-length exponents look like powers with
full ones (O. Goldreich and V. Rosen, 2003, derive a similar statement from factoring). A modulus of 2048 bits gives 112
bits of security, 3072 gives 128; r has 1024 and 1536 bits, far above twice that. A quantum computer breaks all of it.

Adversary: semi-honest parties, any number of whom may collude as long as they lack the private key.
- Without the key, ciphertexts reveal nothing, not even which of them are equal.
- The key's holder learns the plaintexts that it decrypts. From a ciphertext that went through `rerandomise` it learns
  nothing of how the ciphertext was computed: its randomness is within 2^-128 of an independent one, at any computing
  power, if the input ciphertexts were made under this key's h. Without that step a factor or the choice of terms can be
  read off, so `PublicKey.write` refuses a result that was not re-randomised.
Ciphertexts are malleable and not authenticated: they travel sealed and signed, and a party that decrypts for others
must not decrypt ciphertexts that anyone chooses.

Time: arithmetic here takes time that depends on values. Decryption raises to the secret p − 1 with GMP's `powmod`, and
three things limit what that reveals. The exponent of a key is always the same, so the time of its windows is one number
for all ciphertexts. Time that varies with the base reveals nothing, because every ciphertext is first multiplied by a
fresh secret n-th power, which keeps the plaintext: someone who chooses ciphertexts and measures replies does not know
the base. And a key is used in one run. An adversary that watches caches from a program on the same processor is out of
scope: that program could read more than a key. (`powmod_sec` takes 1.4 times as long; a share of a threshold key, whose
base can't be blinded without the other parties, uses it.)
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import index

from gmpy2 import divexact, gcd, invert, is_power, is_prime, isqrt, jacobi, mpz, powmod, primorial, unpack

from comity.errors import Malformed

SIZES = (2048, 3072)
STATISTICAL_BITS = 128
_ENCRYPT_WINDOW = 8
_RERANDOMISE_WINDOW = 6
_PRIME_ROUNDS = 40
_PRIME_GAP_BITS = 100
_FERMAT_STEPS = 64


@dataclass(frozen=True)
class Ciphertext:
    """A number of Z*_{n²}. Only a `fresh` one, encrypted or re-randomised here, may leave."""

    value: mpz
    fresh: bool = False


@dataclass(frozen=True)
class PublicKey:
    """Encrypts, adds, multiplies. Plaintexts are integers of absolute value up to n/3. The third between the two ends
    stays empty, so decryption refuses a sum that left the range, unless it wrapped around completely.

    The first encryption and the first re-randomisation build a table each (some tenths of a second, tens of MB).
    """

    n: mpz
    h: mpz

    @cached_property
    def bits(self) -> int:
        return int(self.n.bit_length())

    @cached_property
    def square(self) -> mpz:
        return self.n * self.n

    @property
    def ciphertext_bytes(self) -> int:
        return self.bits // 4

    @cached_property
    def limit(self) -> int:
        """The largest absolute value of a plaintext."""
        return int(self.n // 3)

    @cached_property
    def _short(self) -> FixedBase:
        return FixedBase(self._residue, self.n, bits=self.bits // 2, window=_ENCRYPT_WINDOW)

    @cached_property
    def _full(self) -> FixedBase:
        # A half-length exponent would hide computed randomness from others but not from the key's holder, who knows
        # p and q: in r0·k + r the high bits show k. An exponent beyond the order of h shows nothing.
        return FixedBase(self._residue, self.n, bits=self.bits + STATISTICAL_BITS, window=_RERANDOMISE_WINDOW)

    @cached_property
    def _residue(self) -> mpz:
        # Computed here and never read from a message: a power of another base would carry a plaintext.
        return powmod(self.h, self.n, self.square)

    def encrypt(self, message: int) -> Ciphertext:
        """A fresh encryption of a signed integer."""
        return Ciphertext(self._short.power(secrets.randbits(self._short.bits), self._encode(message)), fresh=True)

    def add(self, first: Ciphertext, *others: Ciphertext) -> Ciphertext:
        """An encryption of the sum. Sums are not checked against `limit`: the caller bounds them."""
        return Ciphertext(reduce(lambda a, b: a * b % self.square, (c.value for c in others), first.value))

    def add_plain(self, ciphertext: Ciphertext, message: int) -> Ciphertext:
        return Ciphertext(ciphertext.value * (1 + self.n * self._encode(message)) % self.square)

    def multiply(self, ciphertext: Ciphertext, factor: int) -> Ciphertext:
        """An encryption of the product with a signed integer. Zero gives a constant until it is re-randomised."""
        self._encode(factor)
        return Ciphertext(powmod(ciphertext.value, index(factor), self.square))

    def rerandomise(self, ciphertext: Ciphertext) -> Ciphertext:
        """The same plaintext under randomness independent of the old one, also for the key's holder."""
        blind = self._full.power(secrets.randbits(self._full.bits))
        return Ciphertext(ciphertext.value * blind % self.square, fresh=True)

    def write(self, ciphertext: Ciphertext) -> bytes:
        """`ciphertext_bytes` bytes, little-endian, of a ciphertext that is fresh."""
        if not ciphertext.fresh:
            raise ValueError("a computed or received ciphertext must be re-randomised before it leaves")
        return bytes(ciphertext.value.to_bytes(self.ciphertext_bytes, "little"))

    def read(self, data: bytes) -> Ciphertext:
        """A ciphertext from a message: exact length, in (0, n²), a unit."""
        return Ciphertext(self.read_unit(data, "ciphertext"))

    def read_unit(self, data: bytes, what: str) -> mpz:
        """A unit modulo n² from exactly `ciphertext_bytes` bytes."""
        value = _read_number(data, self.ciphertext_bytes, f"Paillier {what}")
        if not 0 < value < self.square or gcd(value, self.n) != 1:
            raise Malformed(f"a Paillier {what} is no unit modulo n²", code="ciphertext")
        return value

    def decode(self, residue: mpz) -> int:
        """The signed integer of a residue modulo n."""
        if residue <= self.limit:
            return int(residue)
        if residue >= self.n - self.limit:
            return int(residue - self.n)
        raise Malformed(f"a Paillier plaintext left the range of ±n/3 ({self.bits} bits)", code="overflow")

    def to_bytes(self) -> bytes:
        """bits (4 bytes), n, h; little-endian."""
        half = self.bits // 8
        return self.bits.to_bytes(4, "little") + bytes(
            self.n.to_bytes(half, "little") + self.h.to_bytes(half, "little")
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> PublicKey:
        """A peer's key, after every check that needs no private key."""
        bits = _read_bits(data)
        n, h = _read_numbers(data[4:], (bits // 8, bits // 8), "Paillier public key")
        _check_modulus(n, bits)
        # A symbol of zero is a common factor.
        if not 1 < h < n - 1 or jacobi(h, n) != 1:
            raise Malformed("the h of a Paillier public key is not of the form −x² mod n", code="public-key")
        return cls(n, h)

    def _encode(self, message: int) -> mpz:
        number = index(message)
        if abs(number) > self.limit:
            raise Malformed(
                f"an integer of at most {self.limit.bit_length()} bits was expected for a Paillier key of {self.bits}"
                f" bits, found one of {number.bit_length()}",
                code="overflow",
            )
        return mpz(number)


@dataclass(frozen=True)
class PrivateKey:
    """The primes, which decrypt everything under `public`."""

    public: PublicKey
    p: mpz = field(repr=False)
    q: mpz = field(repr=False)

    @classmethod
    def generate(cls, bits: int = 3072) -> PrivateKey:
        """A new key from the operating system's entropy."""
        if bits not in SIZES:
            raise ValueError(f"a Paillier key has {' or '.join(map(str, SIZES))} bits, not {bits}")
        while True:
            p, q = _random_prime(bits // 2), _random_prime(bits // 2)
            if not _describe_fault(p, q, bits // 2):
                break
        n = p * q
        while True:
            x = mpz(secrets.randbelow(int(n)))
            if gcd(x, n) == 1:
                return cls(PublicKey(n, -x * x % n), p, q)

    def decrypt(self, ciphertext: Ciphertext) -> int:
        """The signed integer; refused if it is in the empty third of the range."""
        below_p, below_q = (half.decrypt(ciphertext.value) for half in self._halves)
        return self.public.decode(below_q + self.q * ((below_p - below_q) * self._q_inverse % self.p))

    @cached_property
    def _halves(self) -> tuple[_Half, _Half]:
        return _Half(self.p, self.public), _Half(self.q, self.public)

    @cached_property
    def _q_inverse(self) -> mpz:
        return invert(self.q, self.p)

    def to_bytes(self) -> bytes:
        """bits (4 bytes), p, q, h; little-endian. A secret: store it locked and never send it in clear."""
        quarter = self.public.bits // 16
        primes = self.p.to_bytes(quarter, "little") + self.q.to_bytes(quarter, "little")
        h = self.public.h.to_bytes(2 * quarter, "little")
        return self.public.bits.to_bytes(4, "little") + bytes(primes + h)

    @classmethod
    def from_bytes(cls, data: bytes) -> PrivateKey:
        bits = _read_bits(data)
        p, q, h = _read_numbers(data[4:], (bits // 16, bits // 16, bits // 8), "Paillier private key")
        if fault := _describe_fault(p, q, bits // 2):
            raise Malformed(f"the primes of a Paillier private key can't be used: {fault}", code="private-key")
        # −h must be a square modulo both primes: then h = −x² and every power of it is what the public half assumes.
        if not 1 < h < p * q - 1 or jacobi(-h, p) != 1 or jacobi(-h, q) != 1:
            raise Malformed("the h of a Paillier private key is not of the form −x² mod n", code="private-key")
        return cls(PublicKey(p * q, h), p, q)


class _Half:
    """Decryption modulo one prime: L(c^(p−1) mod p²) / L((1 + n)^(p−1) mod p²) mod p, with L(x) = (x − 1)/p."""

    def __init__(self, prime: mpz, public: PublicKey) -> None:
        self._prime, self._exponent = prime, prime - 1
        self._square = prime * prime
        self._scale = invert(self._logarithm(1 + public.n), prime)
        # A secret n-th power, an encryption of zero; the next blind is its square.
        self._blind = powmod(public._residue, secrets.randbits(STATISTICAL_BITS) | 1, self._square)

    def decrypt(self, value: mpz) -> mpz:
        self._blind = blind = self._blind * self._blind % self._square
        return self._logarithm(value % self._square * blind % self._square) * self._scale % self._prime

    def _logarithm(self, value: mpz) -> mpz:
        return divexact(powmod(value, self._exponent, self._square) - 1, self._prime)


def _random_prime(bits: int) -> mpz:
    """Uniform among the primes of `bits` bits that are 3 modulo 4 and have the two upper bits set."""
    while True:
        candidate = mpz(secrets.randbits(bits) | 3 << (bits - 2) | 3)
        if is_prime(candidate, _PRIME_ROUNDS):
            return candidate


def _describe_fault(p: mpz, q: mpz, bits: int) -> str:
    """Why two primes make no key; empty if they do."""
    if any(prime >> (bits - 2) != 3 for prime in (p, q)):
        return f"each must have {bits} bits, the upper two set"
    if p % 4 != 3 or q % 4 != 3:
        return "each must be 3 modulo 4"
    if abs(p - q) >> (bits - _PRIME_GAP_BITS) == 0:
        return "they are too close"
    if gcd(p - 1, q - 1) != 2 or gcd(p * q, (p - 1) * (q - 1)) != 1:
        return "p − 1 and q − 1 must have 2 as their only common factor, and n none with (p − 1)(q − 1)"
    if not is_prime(p, _PRIME_ROUNDS) or not is_prime(q, _PRIME_ROUNDS):
        return "one is not prime"
    return ""


def _check_modulus(n: mpz, bits: int) -> None:
    """The checks of a modulus that need no factors; that it has two large ones can't be checked."""
    if n.bit_length() != bits:
        raise Malformed(f"a Paillier modulus of {bits} bits was declared, found {n.bit_length()}", code="public-key")
    if n % 4 != 1 or gcd(n, primorial(1 << 12)) != 1 or is_power(n) or is_prime(n) or _factors_are_close(n):
        raise Malformed("a Paillier modulus is not a product of two distinct large primes 3 mod 4", code="public-key")


def _factors_are_close(n: mpz) -> bool:
    """Fermat's method finds the factors within a few steps."""
    start = isqrt(n) + 1
    return any(isqrt(rest) ** 2 == rest for rest in (a * a - n for a in range(start, start + _FERMAT_STEPS)))


def _read_bits(data: bytes) -> int:
    bits = int.from_bytes(data[:4], "little")
    if len(data) < 4 or bits not in SIZES:
        raise Malformed(f"a Paillier key must have {' or '.join(map(str, SIZES))} bits", code="key-size")
    return bits


def _read_numbers(data: bytes, lengths: tuple[int, ...], what: str) -> list[mpz]:
    if len(data) != sum(lengths):
        raise Malformed(f"{sum(lengths)} bytes were expected for the numbers of a {what}, found {len(data)}")
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    return [_read_number(data[start : start + size], size, what) for start, size in zip(starts, lengths)]


def _read_number(data: bytes, length: int, what: str) -> mpz:
    if len(data) != length:
        raise Malformed(f"a {what} of {length} bytes was expected, found {len(data)}")
    return mpz.from_bytes(data, "little")


class FixedBase:
    """Powers of `base`, a unit modulo n², for exponents below 2^bits; 2^window entries for each window of them.

    An element y of Z*_{n²} is written as a·(1 + n·t) with a = y mod n and 0 <= t < n. In a product of such elements the
    second factors only add up, because (1 + n·t)(1 + n·u) = 1 + n·(t + u) modulo n², and the first factors are half as
    long as y. A product of table entries therefore multiplies a number of the length of n² by one of the length of n,
    about half the work of multiplying the entries themselves. The exponent is split into windows with one row of the
    table each, so no squarings are left (E. Brickell, D. Gordon, K. McCurley, D. Wilson, Fast exponentiation with
    precomputation, 1992). A secret exponent selects table entries, which cache timing on this machine may reveal: that
    adversary is out of scope.
    """

    def __init__(self, base: mpz, n: mpz, *, bits: int, window: int) -> None:
        self.bits = bits
        self._n = n
        self._square = n * n
        self._window = window
        self._values: list[list[mpz]] = []
        self._lifts: list[list[mpz]] = []
        value, lift = base % n, base // n * invert(base, n) % n
        for _ in range(-(-bits // window)):
            values, lifts = _powers(value, lift, n, 1 << window)
            value, lift = values.pop(), lifts.pop()
            self._values.append(values)
            self._lifts.append(lifts)

    def power(self, exponent: int, message: int | mpz = 0) -> mpz:
        """base^exponent · (1 + n·message) modulo n²."""
        if exponent < 0 or exponent >> self.bits:
            raise ValueError(f"an exponent of at most {self.bits} bits and no sign was expected")
        square = self._square
        product, lift = mpz(1), mpz(message)
        for values, lifts, digit in zip(self._values, self._lifts, unpack(exponent, self._window)):
            product = product * values[digit] % square
            lift += lifts[digit]
        return product * (1 + self._n * (lift % self._n)) % square


def _powers(value: mpz, lift: mpz, n: mpz, count: int) -> tuple[list[mpz], list[mpz]]:
    """The powers 0 … count of value·(1 + n·lift), in the same form."""
    values, lifts, inverse = [mpz(1)], [mpz(0)], mpz(1)
    step = invert(value, n)
    for _ in range(count):
        # a·b = r + n·q = r·(1 + n·q/r): the part above n moves into the lift.
        quotient, remainder = divmod(values[-1] * value, n)
        inverse = inverse * step % n
        lifts.append((lifts[-1] + lift + quotient * inverse) % n)
        values.append(remainder)
    return values, lifts
