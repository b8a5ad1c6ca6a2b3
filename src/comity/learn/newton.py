"""Damped Newton for penalised likelihoods of linear models, on one training set or on a stack of equal shape.

For every party of the stack separately it minimises

    f(V) = sum_i weight_i · loss(V x_i, y_i) + l2/2 · |V|²,

where V has k rows (one for the logistic loss, C − 1 for the softmax) and the loss is convex. A party with fewer records
than features is solved in sample space: the minimiser is V = Aᵀ X, one row of A per record, and the n·k equations
l2·A + residual(X Xᵀ A) = 0 give exactly the Newton step of the d·k primal ones
(Xᵀ (l2·I + D X Xᵀ)⁻¹ = (l2·I + Xᵀ D X)⁻¹ Xᵀ). A step is accepted by sufficient decrease only, so the solver converges
from zero for any data.

Sensitivities rest on the distance to the minimiser: f is l2-strongly convex, so weights with gradient norm tau lie
within tau/l2 of it. The reported gradient norm is therefore measured at the returned weights, in the original
coordinates; it is not the solver's running estimate.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_DECREASE = 1e-4
_HALVINGS = 40
_SHORTEST, _LONGEST = 0.25, 6.0
# Values of f are at most log C and are known to about 1e-15. Closer than this, full Newton steps converge
# quadratically, and comparing values would compare rounding errors.
_ROUNDING = 1e-14
# Elements of the Newton matrices that are solved together: they stay in a core's second-level cache.
_BLOCK = 1 << 18


class Likelihood(Protocol):
    """A convex loss of k margins per record; arrays have parties on the first axis, records on the second."""

    @property
    def width(self) -> int:
        """How many margins a record has."""

    def evaluate(self, margins: Floats, labels: Floats) -> tuple[Floats, Floats]:
        """The loss of every record, and the probabilities behind it."""

    def residual(self, probabilities: Floats, labels: Floats) -> Floats:
        """First derivative by the margins: (parties, records, k)."""

    def curvature(self, probabilities: Floats) -> Floats:
        """Second derivative by the margins: (parties, records, k, k)."""

    def bend(self, probabilities: Floats, direction: Floats) -> Floats:
        """Second derivative along a direction (parties, records, k) of the margins: (parties, records)."""


@dataclass(frozen=True, eq=False)
class Samples:
    """The solver's coordinates are coefficients (parties, records, k) of the records; V = Aᵀ X."""

    gram: Floats

    def start(self, width: int) -> Floats:
        return np.zeros((*self.gram.shape[:2], width))

    def margins(self, point: Floats) -> Floats:
        return self.gram @ point

    def gradient(self, point: Floats, residual: Floats, l2: float) -> Floats:
        return l2 * point + residual

    def inner(self, left: Floats, right: Floats, margins_of_right: Floats) -> Floats:
        """Inner product of the two weight matrices that the coefficients stand for."""
        return _dot(left, margins_of_right)

    def step(self, gradient: Floats, curvature: Floats, l2: float) -> Floats:
        parties, records, width = gradient.shape
        size = records * width
        matrix = (curvature[:, :, :, None, :] * self.gram[:, :, None, :, None]).reshape(parties, size, size)
        return -_solve(matrix, l2, gradient.reshape(parties, size)).reshape(gradient.shape)

    def keep(self, chosen: NDArray[np.bool_]) -> Samples:
        return Samples(self.gram[chosen])


@dataclass(frozen=True, eq=False)
class Features:
    """The solver's coordinates are the weights (parties, features, k)."""

    x: Floats

    def start(self, width: int) -> Floats:
        return np.zeros((len(self.x), self.x.shape[2], width))

    def margins(self, point: Floats) -> Floats:
        return self.x @ point

    def gradient(self, point: Floats, residual: Floats, l2: float) -> Floats:
        return l2 * point + _transpose(self.x) @ residual

    def inner(self, left: Floats, right: Floats, margins_of_right: Floats) -> Floats:
        return _dot(left, right)

    def step(self, gradient: Floats, curvature: Floats, l2: float) -> Floats:
        parties, features, width = gradient.shape
        matrix = np.empty((parties, width, features, width, features))
        turned = _transpose(self.x)
        for row in range(width):
            for column in range(row, width):
                part = turned @ (curvature[:, :, row, column, None] * self.x)
                matrix[:, row, :, column, :] = part
                matrix[:, column, :, row, :] = part
        size = width * features
        right = _transpose(gradient).reshape(parties, size)
        found = _solve(matrix.reshape(parties, size, size), l2, right)
        return -_transpose(found.reshape(parties, width, features))

    def keep(self, chosen: NDArray[np.bool_]) -> Features:
        return Features(self.x[chosen])


Space = Samples | Features


@dataclass(frozen=True, eq=False)
class _Progress:
    """The parties of a block that have not converged, and everything that their next step needs."""

    party: NDArray[np.intp]
    space: Space
    labels: Floats
    weight: Floats
    point: Floats
    margins: Floats
    value: Floats
    probabilities: Floats

    def keep(self, chosen: NDArray[np.bool_]) -> _Progress:
        arrays = ("party", "labels", "weight", "point", "margins", "value", "probabilities")
        return replace(self, space=self.space.keep(chosen), **{name: getattr(self, name)[chosen] for name in arrays})


def minimise(
    x: Floats, labels: Floats, weight: Floats, l2: float, of: Likelihood, *, tol: float, max_iterations: int
) -> tuple[Floats, Floats]:
    """Weights (parties, features, k) for x (parties, records, features), and their gradient norms (parties,).

    The norms are below `tol` where rounding allows it. A party with few contradicting records under a tiny penalty has
    huge coefficients that cancel; where their rounding keeps the gradient above `tol`, the party is solved again in
    coordinates of the span of its records (QR).
    """
    point, norms = np.zeros((len(x), x.shape[2], of.width)), np.zeros(len(x))

    def solve(block: slice) -> None:
        point[block], norms[block] = _minimise_block(
            x[block], labels[block], weight[block], l2, of, tol, max_iterations
        )

    _run_blocks(solve, _blocks(x, of.width))
    return point, norms


def _minimise_block(
    x: Floats, labels: Floats, weight: Floats, l2: float, of: Likelihood, tol: float, max_iterations: int
) -> tuple[Floats, Floats]:
    if x.shape[1] >= x.shape[2]:
        point = _descend(Features(x), labels, weight, l2, of, tol, max_iterations)
        return point, gradient_norm(x, labels, weight, l2, of, point)
    turned = _transpose(x)
    point = turned @ _descend(Samples(x @ turned), labels, weight, l2, of, tol, max_iterations)
    norms = gradient_norm(x, labels, weight, l2, of, point)
    missed = norms > tol
    if missed.any():
        axes, triangle = np.linalg.qr(turned[missed])
        inside = Features(np.ascontiguousarray(_transpose(triangle)))
        point[missed] = axes @ _descend(inside, labels[missed], weight[missed], l2, of, tol, max_iterations)
        norms[missed] = gradient_norm(x[missed], labels[missed], weight[missed], l2, of, point[missed])
    return point, norms


def gradient_norm(x: Floats, labels: Floats, weight: Floats, l2: float, of: Likelihood, point: Floats) -> Floats:
    """The norm of the gradient of f at the weights `point` (parties, features, k), party by party."""
    space = Features(x)
    _, probabilities = of.evaluate(space.margins(point), labels)
    residual = weight[:, :, None] * of.residual(probabilities, labels)
    gradient = space.gradient(point, residual, l2)
    return np.asarray(np.sqrt(_dot(gradient, gradient)), np.float64)


def _descend(
    space: Space, labels: Floats, weight: Floats, l2: float, of: Likelihood, tol: float, max_iterations: int
) -> Floats:
    point = space.start(of.width)
    margins = np.zeros((*labels.shape[:2], of.width))
    loss, probabilities = of.evaluate(margins, labels)
    now = _Progress(
        np.arange(len(labels)), space, labels, weight, point, margins, (weight * loss).sum(-1), probabilities
    )
    result = point.copy()
    for _ in range(max_iterations):
        residual = now.weight[:, :, None] * of.residual(now.probabilities, now.labels)
        gradient = now.space.gradient(now.point, residual, l2)
        squared = now.space.inner(gradient, gradient, now.space.margins(gradient))
        # Half the tolerance, so that the gradient measured at the end in other arithmetic is still within it.
        going = ~(squared <= (tol / 2) ** 2)
        if not going.all():
            result[now.party[~going]] = now.point[~going]
            now, gradient = now.keep(going), gradient[going]
            if not now.party.size:
                return result
        now, moved = _advance(now, gradient, l2, of)
        if not moved.all():
            result[now.party[~moved]] = now.point[~moved]
            now = now.keep(moved)
            if not now.party.size:
                return result
    result[now.party] = now.point
    return result


@dataclass(frozen=True, eq=False)
class _Ray:
    """f along a step. The penalty is a parabola there, so a trial costs no product with the data."""

    of: Likelihood
    l2: float
    labels: Floats
    weight: Floats
    margins: Floats
    ahead: Floats
    square: Floats
    cross: Floats
    own: Floats

    def at(self, length: Floats, of_party: NDArray[np.intp] | slice) -> tuple[Floats, Floats, Floats]:
        """Margins, value and probabilities of some parties, each after its own length of its step."""
        margins = self.margins[of_party] + length[:, None, None] * self.ahead[of_party]
        loss, probabilities = self.of.evaluate(margins, self.labels[of_party])
        bowl = self.square[of_party] + 2 * length * self.cross[of_party] + length * length * self.own[of_party]
        return margins, (self.weight[of_party] * loss).sum(-1) + self.l2 / 2 * bowl, probabilities

    def best_length(self, probabilities: Floats) -> Floats:
        """One Newton iteration for the length, from the probabilities at length 1.

        Where classes can be separated, the loss falls off exponentially and full steps are far too short. This saves
        about a third of the Newton matrices.
        """
        residual = self.of.residual(probabilities, self.labels)
        rise = (self.weight * (residual * self.ahead).sum(-1)).sum(-1) + self.l2 * (self.cross + self.own)
        bend = (self.weight * self.of.bend(probabilities, self.ahead)).sum(-1) + self.l2 * self.own
        safe = np.where(bend > 0, bend, 1.0)
        return np.where(bend > 0, np.clip(1.0 - rise / safe, _SHORTEST, _LONGEST), 1.0)


def _advance(now: _Progress, gradient: Floats, l2: float, of: Likelihood) -> tuple[_Progress, NDArray[np.bool_]]:
    """One Newton step, shortened for each party until f decreases enough; and which parties could move."""
    curvature = now.weight[:, :, None, None] * of.curvature(now.probabilities)
    step = now.space.step(gradient, curvature, l2)
    ahead = now.space.margins(step)
    ray = _Ray(
        of,
        l2,
        now.labels,
        now.weight,
        now.margins,
        ahead,
        square=now.space.inner(now.point, now.point, now.margins),
        cross=now.space.inner(now.point, step, ahead),
        own=now.space.inner(step, step, ahead),
    )
    # Rounding may leave a slope that is not negative: then any decrease is accepted.
    slope = _DECREASE * np.minimum(now.space.inner(gradient, step, ahead), 0.0)
    allowed = now.value + _ROUNDING
    every = slice(None)
    length = ray.best_length(ray.at(np.ones(len(step)), every)[2])
    margins, value, probabilities = ray.at(length, every)
    far = np.flatnonzero(value > allowed + length * slope)
    for _ in range(_HALVINGS):
        if not far.size:
            break
        length[far] = np.minimum(1.0, length[far] / 2)
        margins[far], value[far], probabilities[far] = ray.at(length[far], far)
        far = far[value[far] > allowed[far] + length[far] * slope[far]]
    moved = np.ones(len(step), np.bool_)
    moved[far] = False
    length[far] = 0.0
    point = now.point + length[:, None, None] * step
    return replace(now, point=point, margins=margins, value=value, probabilities=probabilities), moved


def _solve(matrix: Floats, l2: float, right: Floats) -> Floats:
    size = matrix.shape[-1]
    matrix.reshape(len(matrix), size * size)[:, :: size + 1] += l2
    try:
        found = np.linalg.solve(matrix, right[:, :, None])
    except np.linalg.LinAlgError:
        # Long, repeated records outweigh the penalty. A heavier one gives a direction to try.
        heavier = 1e-14 * size * np.abs(matrix).max((1, 2))
        matrix.reshape(len(matrix), size * size)[:, :: size + 1] += heavier[:, None]
        found = np.linalg.solve(matrix, right[:, :, None])
    return np.asarray(found[:, :, 0], np.float64)


def _run_blocks(work: Callable[[slice], None], blocks: list[slice]) -> None:
    """Run blocks in threads: each writes to its own slice, and numpy releases the interpreter's lock."""
    if len(blocks) < 2:
        for block in blocks:
            work(block)
        return
    with ThreadPoolExecutor(min(len(blocks), os.cpu_count() or 1)) as pool:
        for _ in pool.map(work, blocks):
            pass


def _blocks(x: Floats, width: int) -> list[slice]:
    parties, records, features = x.shape
    unknowns = min(records, features) * width
    size = max(1, _BLOCK // max(1, unknowns * unknowns, records * features // 8))
    return [slice(start, start + size) for start in range(0, parties, size)]


def _transpose(stack: Floats) -> Floats:
    return stack.swapaxes(-1, -2)


def _dot(left: Floats, right: Floats) -> Floats:
    return np.asarray((left * right).sum((-1, -2)), np.float64)
