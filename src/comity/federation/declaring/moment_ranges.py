"""What public figures allow of an opened matrix of second moments: a sum of squares of bounded numbers.

Without noise no sum of squares is negative or above what so many records can add up to, and of any two columns the sum
of products is at most what their sums of squares allow (Cauchy and Schwarz): the smaller eigenvalue of the two columns'
own matrix is not negative. No more is any eigenvalue of the whole matrix. Noise of spectral norm f moves an eigenvalue
by f at most (Weyl). Of two columns f is at most the Frobenius norm of three numbers. Of a symmetric matrix of width w
whose independent Gaussian entries have variances v_ij, f exceeds t with probability 2w·exp(−t²/2v) at most, where v is
the largest sum of variances of a row (a Gaussian series of matrices, J. Tropp, 2012).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comity.federation.declaring.ranges import Range, Weights

Floats = NDArray[np.float64]


def moment_ranges(
    matrix: Floats, spread: Floats, most: float, *, gaussian: bool, pairs: bool = True
) -> tuple[Range, ...]:
    """`spread` is how far an error of one in the opened number behind each entry moves that entry, `most` the largest
    sum of squares of a column. Without `pairs` every column is looked at by itself; all of them together only where
    noise is `gaussian`."""
    squares, own = np.diag(matrix), np.diag(spread)
    found = Range("every sum of squares", squares, 0.0, most, Weights(own, own, own))
    row, column = np.triu_indices(len(matrix), 1)
    if not pairs or not len(row):
        return (found,)
    first, second, product = squares[row], squares[column], matrix[row, column]
    smaller = (first + second) / 2 - np.hypot((first - second) / 2, product)
    moved = np.sqrt(own[row] ** 2 + own[column] ** 2 + 2 * spread[row, column] ** 2)
    what = "the smaller eigenvalue of the second moments of any two columns"
    of_two = Range(what, smaller, 0.0, (first + second) / 2, Weights(moved, moved, moved))
    if not gaussian:
        return found, of_two
    together = Weights(l1=float(spread.sum(1).max()), l2=float(np.sqrt((spread**2).sum(1).max())), largest=0.0)
    what = "every eigenvalue of the second moments"
    values = np.asarray(np.linalg.eigvalsh(matrix), np.float64)
    return found, of_two, Range(what, values, 0.0, len(matrix) * most, together)
