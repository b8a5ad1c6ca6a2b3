"""What the listed rings cost to break, by several measures, computed again from N, q and the two distributions.

The primal attack: reduce the lattice of all short (s, e, 1) with BKZ of block size b until the secret is its shortest
vector (E. Alkim, L. Ducas, T. Pöppelmann, P. Schwabe, Post-quantum key exchange, 2016; with the secret scaled to the
size of the error, S. Bai and S. Galbraith, 2014). It succeeds at the smallest b with

    sqrt(b)·σ  <=  δ^(2b − d − 1) · (q^m · (σ/σ_s)^N)^(1/d),     d = N + m + 1,

for the best number m of samples; δ is the root Hermite factor that BKZ-b reaches.
"""

from __future__ import annotations

from math import e, log2, pi, sqrt
from typing import Any

import pytest

from comity.crypto.products.rlwe import ALLOWED, COINS, ERROR_VARIANCE, NARROW, WIDE, Parameters

TERNARY = sqrt(2 / 3)


def reached(block: int) -> float:
    """log2 δ."""
    return log2((pi * block) ** (1 / block) * block / (2 * pi * e)) / (2 * (block - 1))


def broken(degree: int, modulus: float, sigma: float, block: int) -> bool:
    for samples in range(degree // 4, 3 * degree, 16):
        size = degree + samples + 1
        short = 0.5 * log2(block) + log2(sigma)
        volume = (samples * modulus + degree * log2(sigma / TERNARY)) / size
        if short <= (2 * block - size - 1) * reached(block) + volume:
            return True
    return False


def block_size(degree: int, modulus: float, sigma: float = sqrt(ERROR_VARIANCE)) -> int:
    low, high = 60, degree
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if broken(degree, modulus, sigma, middle) else (middle + 1, high)
    return low


def measures(parameters: Parameters) -> tuple[float, float]:
    """Bits by core-SVP, classical and quantum."""
    block = block_size(parameters.degree, parameters.modulus)
    return 0.292 * block, 0.265 * block


def test_the_figures_that_the_documentation_states() -> None:
    assert block_size(NARROW.degree, NARROW.modulus) == 445 and block_size(WIDE.degree, WIDE.modulus) == 686
    assert measures(NARROW) == pytest.approx((129.9, 117.9), abs=0.05)
    assert measures(WIDE) == pytest.approx((200.3, 181.8), abs=0.05)


@pytest.mark.parametrize("parameters", ALLOWED)
def test_every_listed_ring_has_128_bits_by_classical_core_svp(parameters: Any) -> None:
    assert measures(parameters)[0] >= 128


def test_a_modulus_of_three_whole_words_would_have_115() -> None:
    """Control: what the idle bits of the narrow ring are for."""
    assert NARROW.idle == 8
    assert 0.292 * block_size(4096, 96) == pytest.approx(115.0, abs=0.1)
    assert 0.265 * block_size(4096, 96) == pytest.approx(104.4, abs=0.1)


@pytest.mark.parametrize(("degree", "modulus"), [(4096, 109), (8192, 218)])
def test_the_same_attack_gives_the_standards_table(degree: int, modulus: int) -> None:
    """The homomorphic encryption standard's 128 bits for this error: 0.292 b + 16.4 + log2(8 d), a more lenient sum."""
    block = block_size(degree, modulus, 3.2)
    assert 126 < 0.292 * block + 16.4 + log2(8 * 2 * degree) < 131


def test_errors_are_as_wide_as_the_measures_take_them() -> None:
    assert ERROR_VARIANCE == COINS / 4 and sqrt(ERROR_VARIANCE) > 3.2
