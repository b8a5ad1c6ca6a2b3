from __future__ import annotations

from typing import Any

import gmpy2
import numpy as np
import pytest
from scipy.stats import binom, chisquare

from comity.crypto.products.negacyclic import Transform, multiply_out, twiddles
from comity.crypto.products.rlwe import (
    ALLOWED,
    COINS,
    ERROR_VARIANCE,
    LARGEST_ERROR,
    NARROW,
    WIDE,
    ColumnSecrets,
    Errors,
    ProductSum,
    draw_public_block,
    draw_ternary,
)
from comity.entropy import Stream, fresh_seed
from comity.errors import Refused

RNG = np.random.default_rng(11)
BOTH = pytest.mark.parametrize("parameters", ALLOWED, ids=["narrow", "wide"])


def room(parameters: Any) -> np.ndarray:
    return np.empty((parameters.words, parameters.degree), "<i4")


def numbers(words: Any, q: Any) -> list[Any]:
    """Words of 32 bits, signed or not, least significant first, as Python integers modulo q."""
    return [sum(int(word) << (32 * place) for place, word in enumerate(line)) % q for line in words.T]


def multiplied(a: Any, b: Any, width: Any) -> list[Any]:
    """The exact product of polynomials modulo x^N + 1 by one multiplication of long integers; a >= 0, b signed."""
    size, step = len(a), width // 8

    def packed(values: Any) -> Any:
        return gmpy2.mpz(int.from_bytes(b"".join(int(v).to_bytes(step, "little") for v in values), "little"))

    def unpacked(number: Any) -> list[Any]:
        raw = int(number).to_bytes(2 * size * step, "little")
        return [int.from_bytes(raw[i * step : (i + 1) * step], "little") for i in range(2 * size)]

    up = unpacked(packed(a) * packed([max(int(v), 0) for v in b]))
    down = unpacked(packed(a) * packed([max(-int(v), 0) for v in b]))
    return [up[i] - down[i] - up[i + size] + down[i + size] for i in range(size)]


def reflected(y: Any) -> np.ndarray:
    return np.concatenate([y[:1], -y[:0:-1]])


def schoolbook(a: Any, b: Any) -> list[int]:
    size = len(a)
    out = [0] * size
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            out[(i + j) % size] += x * y if i + j < size else -x * y
    return out


def test_the_reference_is_the_schoolbook_product() -> None:
    a = [int(v) for v in RNG.integers(0, 2**60, 24)]
    b = [int(v) for v in RNG.integers(-(2**12), 2**12, 24)]
    assert multiplied(a, b, 128) == schoolbook(a, b)


def products(left: Any, right: Any, rows: Any) -> Any:
    size = rows.shape[1]
    multiply_out(left, right, np.empty(size), rows, *twiddles(size))
    return rows


@pytest.mark.parametrize("size", [4096, 8192])
def test_products_of_polynomials_are_exact(size: Any) -> None:
    transform = Transform(size)
    left = RNG.integers(0, 2**20, (2, size))
    right = RNG.integers(-(2**12), 2**12, (3, size))
    left[1], right[2] = 2**20, -(2**12)
    one, other = (transform.forward(rows.astype(float), np.empty(rows.shape)) for rows in (left, right))
    found = products(one, other, np.empty((6, size))) / (size // 2)
    for i in range(2):
        for j in range(3):
            assert np.rint(found[3 * i + j]).astype(int).tolist() == multiplied(left[i], right[j], 64)
    assert np.abs(found - np.rint(found)).max() < 0.05


@pytest.mark.parametrize("size", [4096, 8192])
def test_the_unit_gives_a_polynomial_back(size: Any) -> None:
    transform = Transform(size)
    rows = RNG.integers(-(2**30), 2**30, (2, size)).astype(float)
    spectra = transform.forward(rows.copy(), np.empty_like(rows))
    assert np.abs(products(spectra, transform.unit(), np.empty_like(rows)) - rows).max() < 1e-4


def test_parameters_stay_below_the_limits_for_128_bits() -> None:
    limits = {4096: 109, 8192: 218}
    assert {(p.degree, 32 * p.words) for p in ALLOWED} == {(4096, 96), (8192, 128)}
    assert all(32 * p.words <= limits[p.degree] for p in ALLOWED)
    assert all(p.digits * p.digit_bits >= 32 * p.words for p in ALLOWED)
    assert (NARROW.largest, WIDE.largest, WIDE.bits) == (2**12, 2**16, 64)


def test_errors_are_centred_binomial() -> None:
    drawn = Errors(50, 4096).draw(Stream(fresh_seed()))
    counts = np.bincount(drawn.reshape(-1).astype(int) + LARGEST_ERROR, minlength=COINS + 1)
    expected = binom.pmf(np.arange(COINS + 1), COINS, 0.5) * drawn.size
    middle = expected > 20
    assert chisquare(counts[middle], expected[middle] * counts[middle].sum() / expected[middle].sum()).pvalue > 1e-6
    assert abs(drawn.var() - ERROR_VARIANCE) < 0.2
    for first, second in ((0, 1), (0, 17), (25, 49)):
        assert abs(np.corrcoef(drawn[first], drawn[second])[0, 1]) < 0.08


@pytest.mark.parametrize("count", [1, 2, 3, 4, 4097])
def test_errors_of_any_number(count: int) -> None:
    assert Errors(1, count).draw(Stream(fresh_seed())).shape == (1, count)


def test_secrets_are_uniform_on_three_values() -> None:
    drawn = draw_ternary(Stream(fresh_seed()), 20, 4096)
    assert chisquare(np.bincount(drawn.reshape(-1) + 1, minlength=3)).pvalue > 1e-6


@BOTH
def test_a_ciphertext_is_product_plus_value_plus_error_and_nothing_else(parameters: Any) -> None:
    q = 1 << (32 * parameters.words)
    shift, columns = 32 * parameters.words - 47, 2
    secrets = ColumnSecrets(parameters, columns, Stream(fresh_seed()))
    public = Stream(fresh_seed())
    residuals = []
    for length in (parameters.degree, 100):
        a = draw_public_block(public, parameters, room(parameters))
        values = RNG.integers(-parameters.largest, parameters.largest + 1, (columns, length)).astype(np.int32)
        values[:, 0], values[:, 1] = parameters.largest, -parameters.largest
        message = secrets.encrypt(a, values, shift, Stream(fresh_seed()))
        assert message.shape == (parameters.words, columns, length) and message.dtype == np.int32
        for column in range(columns):
            product = multiplied(numbers(a, q), secrets._secrets[column], 32 * parameters.words + 32)
            found = numbers(message[:, column], q)
            for k in range(length):
                rest = (found[k] - product[k] - (int(values[column, k]) << shift)) % q
                residuals.append(rest - q if rest > q // 2 else rest)
    assert not any(rest % (1 << parameters.idle) for rest in residuals)
    residuals = np.array(residuals, float) / (1 << parameters.idle)
    assert np.abs(residuals).max() <= LARGEST_ERROR
    assert abs(residuals.mean()) < 0.2 and abs(residuals.var() - ERROR_VARIANCE) < 0.8


@BOTH
@pytest.mark.parametrize("extreme", [False, True])
def test_a_sum_of_products_is_exact(parameters: Any, extreme: bool) -> None:
    q = 1 << (32 * parameters.words)
    total = ProductSum(parameters, 1)
    public = Stream(fresh_seed())
    expected = np.array([0] * parameters.degree, object)
    for length in (parameters.degree, parameters.degree, 77):
        a = draw_public_block(public, parameters, room(parameters))
        y = np.full((1, length), parameters.largest, np.int32)
        if not extreme:
            y = RNG.integers(-parameters.largest, parameters.largest + 1, (1, length)).astype(np.int32)
        total.add(a, y)
        padded = np.zeros(parameters.degree, int)
        padded[:length] = y
        expected += np.array(multiplied(numbers(a, q), reflected(padded), 32 * parameters.words + 64), object)
    noise = Errors(1, parameters.degree).draw(Stream(fresh_seed()))
    found = numbers(total.total(noise)[:, 0], q)
    assert found == [int(v) % q for v in expected + noise[0].astype(object) * (1 << parameters.idle)]


@BOTH
def test_long_sums_are_rounded_in_time(parameters: Any) -> None:
    """Many blocks of the largest values, with one sign pattern: the error per coefficient stays far from one half."""
    total = ProductSum(parameters, 1)
    parts = [ProductSum(parameters, 1) for _ in range(10)]
    public = Stream(fresh_seed())
    y = (parameters.largest * RNG.choice([-1, 1], (1, parameters.degree))).astype(np.int32)
    for block in range(130):
        a = draw_public_block(public, parameters, room(parameters))
        total.add(a, y)
        parts[block % 10].add(a, y)
    q = 1 << (32 * parameters.words)
    nothing = np.zeros((1, parameters.degree), np.int8)
    added = [sum(column) % q for column in zip(*(numbers(part.total(nothing)[:, 0], q) for part in parts))]
    assert numbers(total.total(nothing)[:, 0], q) == added


@BOTH
def test_the_inner_product_with_a_secret_is_the_constant_coefficient(parameters: Any) -> None:
    q = 1 << (32 * parameters.words)
    secrets = ColumnSecrets(parameters, 2, Stream(fresh_seed()))
    element = RNG.integers(0, 2**32, (parameters.words, 1, parameters.degree)).astype(np.uint32)
    sums = secrets.inner_products(element)
    for column in range(2):
        product = multiplied(numbers(element[:, 0], q), secrets._secrets[column], 32 * parameters.words + 32)
        assert numbers(sums[:, column], q) == [product[0] % q]


def test_lost_precision_is_refused_by_the_encryptor() -> None:
    secrets = ColumnSecrets(NARROW, 1, Stream(fresh_seed()))
    secrets._spectra *= 1 + 1e-10
    with pytest.raises(Refused, match="precision"):
        secrets.encrypt(
            draw_public_block(Stream(fresh_seed()), NARROW, room(NARROW)),
            np.zeros((1, 10), np.int32),
            50,
            Stream(fresh_seed()),
        )


def test_lost_precision_is_refused_by_the_evaluator() -> None:
    total = ProductSum(NARROW, 1)
    total.add(draw_public_block(Stream(fresh_seed()), NARROW, room(NARROW)), np.full((1, 4096), 2**24, np.int32))
    with pytest.raises(Refused, match="precision"):
        total.total(np.zeros((1, 4096), np.int8))
