"""How long the weights of a penalised fit can be, for any records: the bound behind averaging of models.

At a minimiser of mean_i loss_i(W) + l2/2·|W|² the gradient vanishes; its inner product with W gives

    l2·|W|² = mean_i h_i,   h_i = sum_c (y_ic − p_ic)·u_ic,   u_i = W x_i,   p_i = softmax(u_i).

h_i is linear in y_i, so over the simplex it is largest at a single class c. With m_k = u_c − u_k for the
other classes, h = sum_k p_k·m_k and dh/dm_k = p_k·(1 − m_k + h). So at a maximum every m_k equals 1 + h =:
m, where h = (C − 1)·m / (e^m + C − 1), which gives (m − 1)·e^(m − 1) = (C − 1)/e, i.e. h = m − 1 = W0((C −
1)/e) with Lambert's function. (A margin that runs to infinity drops its class, and W0 grows with C.) Hence,
for hard and soft labels and records of any length,

    |W| <= sqrt(W0((C − 1)/e) / l2).

It is attained by one record whose length puts its margin at m. At |x| <= 1 such a record exists whenever l2
is small enough; for larger l2 the bound still holds and is loose.

One vector instead of two class rows: l2·|w|² = mean_i (y_i − sigma(u_i))·u_i <= max_u u/(1 + e^u), and the
maximum is where (u − 1)·e^u = 1, again W0(1/e) = 0.2785. The constant is that of two classes, though the
penalties differ.

With a remaining gradient of norm tau, l2·|W|² <= W0 + tau·|W|; the larger root is returned.
"""

from __future__ import annotations

from math import e, isfinite, sqrt

from comity.errors import StudyError
from comity.special import lambertw

# More than the rounding of the root and of Lambert's function.
_UP = 1 + 1e-14


def minimiser_radius(l2: float, classes: int, *, gradient_norm: float = 0.0) -> float:
    """A bound on the Frobenius norm of every softmax fit with penalty l2 and this gradient norm."""
    if classes < 2:
        raise StudyError(f"a classifier has two classes or more, found {classes}")
    if not (isfinite(l2) and l2 > 0 and isfinite(gradient_norm) and gradient_norm >= 0):
        raise StudyError(f"l2 must be above 0 and the gradient norm at least 0, found {l2} and {gradient_norm}")
    largest = float(lambertw((classes - 1) / e).real)
    return (gradient_norm + sqrt(gradient_norm**2 + 4 * l2 * largest)) / (2 * l2) * _UP


def vector_radius(l2: float, *, gradient_norm: float = 0.0) -> float:
    """The bound for a logistic fit: one vector of weights for two classes."""
    return minimiser_radius(l2, 2, gradient_norm=gradient_norm)
