"""Which noise guards a value that is bounded in L2."""

from __future__ import annotations

from math import sqrt

from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import Approx, Loss, Pure
from comity.privacy.mechanisms import Noise
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.spherical import Spherical


def mechanism(loss: Loss, size: int | None = None) -> Noise:
    """L2 noise for a loss: spherical when pure; with a δ Gaussian, or over few numbers whichever is quieter.

    Pure ε implies (ε, δ). Per unit of sensitivity a coordinate of spherical noise over `size` numbers deviates by
    √(size + 1)/ε and one of Gaussian noise by 1/μ: for a small ε and a few numbers the first is less.
    """
    if isinstance(loss, Pure):
        return Spherical(loss)
    bought = gaussian_budget(loss)
    if isinstance(loss, Approx) and size is not None:
        pure = Pure(loss.epsilon)
        if sqrt(size + 1) / float(pure.epsilon) < 1 / sqrt(float(bought.square)):
            return Spherical(pure)
    return Gaussian(bought)
