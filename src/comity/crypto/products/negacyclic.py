"""Products of polynomials modulo x^N + 1, by a Fourier transform in double precision.

A real polynomial p of N coefficients is read as the complex polynomial of N/2 coefficients p_j + i p_(j+N/2) modulo
x^(N/2) − i, which has the same products (the real and imaginary halves lie side by side in memory, so nothing is
moved). The transform splits x^L − c into factors x^(L/4) − c' recursively. It needs no separate twist; it outputs the
N/2 values in the order that the inverse expects. The result is exact as long as every coefficient, computed in floating
point, is near an integer: the caller checks that when rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from comity.compiled import compiled, inlined

Floats = NDArray[np.float64]


@cache
def twiddles(size: int) -> tuple[Floats, Floats]:
    """The constants of the transform: before and after the transposition, in the order in which passes use them.

    An angle is a whole number of steps of π/N, so every constant is the nearest double of the true cosine or sine.
    """
    half = size // 2
    before = _levels([half], (2, 4, 4) if size == 4096 else (4, 4, 4), half)
    first = _constants([angle for level in before[:-1] for angle in level], size)[:, :, None]
    after = [_levels([angle], (4, 4, 4), half)[:-1] for angle in before[-1]]
    second = np.stack([_constants([angle for level in tree for angle in level], size) for tree in after], axis=2)
    return np.ascontiguousarray(first), np.ascontiguousarray(second)


def _levels(roots: list[int], radices: tuple[int, ...], half: int) -> list[list[int]]:
    levels = [roots]
    for radix in radices:
        turns = (0, 2 * half, half, 3 * half) if radix == 4 else (0, 2 * half)
        levels.append([(angle // radix + turn) % (4 * half) for angle in levels[-1] for turn in turns])
    return levels


def _constants(angles: list[int], size: int) -> Floats:
    steps = np.array([[angle // 2, angle // 4, 3 * angle // 4] for angle in angles], np.float64)
    turned = steps * (np.pi / size)
    return np.stack([np.cos(turned), np.sin(turned)], axis=2).reshape(len(angles), 6)


@inlined
def _split2(x: Floats, half: int, w: Floats) -> None:
    """x^(2t) − c into x^t − w and x^t + w, with w² = c."""
    t = half // 2
    for j in range(t):
        wr, wi = w[0, 0, 0], w[0, 1, 0]
        ar, ai, br, bi = x[j], x[j + half], x[j + t], x[j + t + half]
        pr = wr * br - wi * bi
        pi = wr * bi + wi * br
        x[j] = ar + pr
        x[j + half] = ai + pi
        x[j + t] = ar - pr
        x[j + t + half] = ai - pi


@inlined
def _merge2(x: Floats, half: int, w: Floats) -> None:
    t = half // 2
    for j in range(t):
        wr, wi = w[0, 0, 0], w[0, 1, 0]
        ar, ai, br, bi = x[j], x[j + half], x[j + t], x[j + t + half]
        dr = ar - br
        di = ai - bi
        x[j] = ar + br
        x[j + half] = ai + bi
        x[j + t] = wr * dr + wi * di
        x[j + t + half] = wr * di - wi * dr


@inlined
def _split4(x: Floats, half: int, lanes: int, blocks: int, t: int, w: Floats, at: int, spread: int) -> None:
    """Each of `blocks` residues modulo x^(4t) − c into four modulo x^t − r, for the fourth roots r of c."""
    for block in range(blocks):
        for row in range(t // lanes):
            for lane in range(lanes):
                j = block * 4 * t + row * lanes + lane
                ar, br, cr, dr = x[j], x[j + t], x[j + 2 * t], x[j + 3 * t]
                ai, bi, ci, di = x[j + half], x[j + t + half], x[j + 2 * t + half], x[j + 3 * t + half]
                v = at + block
                pr = w[v, 0, lane * spread] * cr - w[v, 1, lane * spread] * ci
                pi = w[v, 0, lane * spread] * ci + w[v, 1, lane * spread] * cr
                qr = w[v, 2, lane * spread] * br - w[v, 3, lane * spread] * bi
                qi = w[v, 2, lane * spread] * bi + w[v, 3, lane * spread] * br
                sr = w[v, 4, lane * spread] * dr - w[v, 5, lane * spread] * di
                si = w[v, 4, lane * spread] * di + w[v, 5, lane * spread] * dr
                er, ei, fr, fi = ar + pr, ai + pi, ar - pr, ai - pi
                gr, gi, hr, hi = qr + sr, qi + si, qr - sr, qi - si
                x[j] = er + gr
                x[j + half] = ei + gi
                x[j + t] = er - gr
                x[j + t + half] = ei - gi
                x[j + 2 * t] = fr - hi
                x[j + 2 * t + half] = fi + hr
                x[j + 3 * t] = fr + hi
                x[j + 3 * t + half] = fi - hr


@inlined
def _merge4(x: Floats, half: int, lanes: int, blocks: int, t: int, w: Floats, at: int, spread: int) -> None:
    """The inverse of `_split4`, times four."""
    for block in range(blocks):
        for row in range(t // lanes):
            for lane in range(lanes):
                j = block * 4 * t + row * lanes + lane
                ar, br, cr, dr = x[j], x[j + t], x[j + 2 * t], x[j + 3 * t]
                ai, bi, ci, di = x[j + half], x[j + t + half], x[j + 2 * t + half], x[j + 3 * t + half]
                v = at + block
                er, ei, gr, gi = ar + br, ai + bi, ar - br, ai - bi
                fr, fi, hr, hi = cr + dr, ci + di, ci - di, dr - cr
                pr, pi = er - fr, ei - fi
                qr, qi = gr + hr, gi + hi
                sr, si = gr - hr, gi - hi
                x[j] = er + fr
                x[j + half] = ei + fi
                x[j + 2 * t] = w[v, 0, lane * spread] * pr + w[v, 1, lane * spread] * pi
                x[j + 2 * t + half] = w[v, 0, lane * spread] * pi - w[v, 1, lane * spread] * pr
                x[j + t] = w[v, 2, lane * spread] * qr + w[v, 3, lane * spread] * qi
                x[j + t + half] = w[v, 2, lane * spread] * qi - w[v, 3, lane * spread] * qr
                x[j + 3 * t] = w[v, 4, lane * spread] * sr + w[v, 5, lane * spread] * si
                x[j + 3 * t + half] = w[v, 4, lane * spread] * si - w[v, 5, lane * spread] * sr


@inlined
def _multiply(a: Floats, b: Floats, out: Floats, half: int) -> None:
    for m in range(half):
        out[m] = a[m] * b[m] - a[m + half] * b[m + half]
        out[m + half] = a[m] * b[m + half] + a[m + half] * b[m]


@inlined
def _transpose(x: Floats, y: Floats, half: int, rows: int, columns: int) -> None:
    for part in range(2):
        for column in range(columns):
            for row in range(rows):
                y[part * half + column * rows + row] = x[part * half + row * columns + column]


# One function for each size, with literals: the compiler then knows the lengths of all loops, knows that real and
# imaginary parts don't overlap, and uses vector instructions.


@compiled
def _forward_4096(rows: Floats, spectra: Floats, first: Floats, second: Floats) -> None:
    for r in range(len(rows)):
        x, y = rows[r], spectra[r]
        _split2(x, 2048, first)
        _split4(x, 2048, 32, 2, 256, first, 1, 0)
        _split4(x, 2048, 32, 8, 64, first, 3, 0)
        _transpose(x, y, 2048, 32, 64)
        _split4(y, 2048, 32, 1, 512, second, 0, 1)
        _split4(y, 2048, 32, 4, 128, second, 1, 1)
        _split4(y, 2048, 32, 16, 32, second, 5, 1)


@compiled
def _products_4096(left: Floats, right: Floats, y: Floats, rows: Floats, first: Floats, second: Floats) -> None:
    for r in range(len(rows)):
        x = rows[r]
        _multiply(left[r // len(right)], right[r % len(right)], y, 2048)
        _merge4(y, 2048, 32, 16, 32, second, 5, 1)
        _merge4(y, 2048, 32, 4, 128, second, 1, 1)
        _merge4(y, 2048, 32, 1, 512, second, 0, 1)
        _transpose(y, x, 2048, 64, 32)
        _merge4(x, 2048, 32, 8, 64, first, 3, 0)
        _merge4(x, 2048, 32, 2, 256, first, 1, 0)
        _merge2(x, 2048, first)


@compiled
def _forward_8192(rows: Floats, spectra: Floats, first: Floats, second: Floats) -> None:
    for r in range(len(rows)):
        x, y = rows[r], spectra[r]
        _split4(x, 4096, 64, 1, 1024, first, 0, 0)
        _split4(x, 4096, 64, 4, 256, first, 1, 0)
        _split4(x, 4096, 64, 16, 64, first, 5, 0)
        _transpose(x, y, 4096, 64, 64)
        _split4(y, 4096, 64, 1, 1024, second, 0, 1)
        _split4(y, 4096, 64, 4, 256, second, 1, 1)
        _split4(y, 4096, 64, 16, 64, second, 5, 1)


@compiled
def _products_8192(left: Floats, right: Floats, y: Floats, rows: Floats, first: Floats, second: Floats) -> None:
    for r in range(len(rows)):
        x = rows[r]
        _multiply(left[r // len(right)], right[r % len(right)], y, 4096)
        _merge4(y, 4096, 64, 16, 64, second, 5, 1)
        _merge4(y, 4096, 64, 4, 256, second, 1, 1)
        _merge4(y, 4096, 64, 1, 1024, second, 0, 1)
        _transpose(y, x, 4096, 64, 64)
        _merge4(x, 4096, 64, 16, 64, first, 5, 0)
        _merge4(x, 4096, 64, 4, 256, first, 1, 0)
        _merge4(x, 4096, 64, 1, 1024, first, 0, 0)


@compiled
def evaluate(rows: Floats, spectra: Floats, first: Floats, second: Floats) -> None:
    """`Transform.forward` for compiled callers; the constants are `twiddles(size)`."""
    if rows.shape[1] == 4096:
        _forward_4096(rows, spectra, first, second)
    else:
        _forward_8192(rows, spectra, first, second)


@compiled
def multiply_out(left: Floats, right: Floats, scratch: Floats, rows: Floats, first: Floats, second: Floats) -> None:
    """Into `rows`, N/2 times the product of each polynomial of `left` with each of `right`, both given by their values;
    `scratch` holds one row, and the constants are `twiddles(size)`."""
    if rows.shape[1] == 4096:
        _products_4096(left, right, scratch, rows, first, second)
    else:
        _products_8192(left, right, scratch, rows, first, second)


@dataclass(frozen=True)
class Transform:
    """The transform of polynomials of `size` coefficients, many at a time; a row is a polynomial."""

    size: int

    def forward(self, rows: Floats, spectra: Floats) -> Floats:
        """The values of each row, real parts before imaginary parts, into `spectra`; `rows` is overwritten."""
        evaluate(rows, spectra, *twiddles(self.size))
        return spectra

    def unit(self) -> Floats:
        """The values of the constant 2/N: the product with it is the polynomial itself."""
        values = np.zeros((1, self.size))
        values[:, : self.size // 2] = 2 / self.size
        return values
