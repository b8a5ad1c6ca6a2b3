"""Powers of one fixed element modulo n², by table.

An element y of Z*_{n²} is written as a·(1 + n·t) with a = y mod n and 0 <= t < n. In a product of many such elements
the second factors only add up, because (1 + n·t)(1 + n·u) = 1 + n·(t + u) modulo n², and the first factors are half as
long as y. A product of table entries therefore multiplies a number of the length of n² by one of the length of n, about
half the work of multiplying the entries themselves. The exponent is cut into windows and one row of the table serves
each window, so that no squarings are left (E. Brickell, D. Gordon, K. McCurley, D. Wilson, Fast exponentiation with
precomputation, 1992).

A secret exponent selects table entries: whoever watches this machine's cache or timing may learn of it. That adversary
is out of scope.
"""

from __future__ import annotations

from gmpy2 import invert, mpz, unpack


class FixedBase:
    """Powers of `base`, a unit modulo n², for exponents below 2^bits; 2^window entries for each window of them."""

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
