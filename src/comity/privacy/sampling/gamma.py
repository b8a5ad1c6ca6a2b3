"""Gamma variables to eighty digits, for shapes that need not be whole."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

from comity.privacy.mixture import PRECISE
from comity.privacy.sampling.uniforms import precise_uniform


def gamma(shape: Fraction) -> Decimal:
    """A Gamma variable of this shape and scale 1: exponentials, and the rest of the shape by itself."""
    with localcontext(PRECISE):
        total = Decimal(0)
        whole = int(shape)
        for start in range(0, whole, 1000):
            # −ln of a product of uniforms: one logarithm for a thousand exponentials.
            product = Decimal(1)
            for _ in range(min(1000, whole - start)):
                product *= precise_uniform()
            total -= product.ln()
        rest = shape - whole
        if rest == Fraction(1, 2):
            return total + _half()
        return total + _below_one(rest) if rest else total


def _half() -> Decimal:
    """Half the square of a normal variable."""
    while True:
        first, second = 2 * precise_uniform() - 1, 2 * precise_uniform() - 1
        square = first * first + second * second
        if 0 < square < 1:
            # The polar method's normal is first·sqrt(−2 ln(square)/square); half its square needs no root.
            return -first * first * square.ln() / square


def _below_one(shape: Fraction) -> Decimal:
    """Jöhnk's method: an exponential times a Beta(b, 1 − b) variable, kept in three of four cases or more.

    X = U^(1/b) and Y = W^(1/(1−b)), given X + Y <= 1, make X/(X + Y) that Beta variable. A small b makes X as
    small as exp(−1000/b), which a decimal holds as precisely as any other number.
    """
    power, rest = Decimal(shape.denominator) / shape.numerator, 1 / (1 - shape)
    other = Decimal(rest.numerator) / rest.denominator
    while True:
        first = (precise_uniform().ln() * power).exp()
        second = (precise_uniform().ln() * other).exp()
        if 0 < first + second <= 1:
            return -precise_uniform().ln() * first / (first + second)
