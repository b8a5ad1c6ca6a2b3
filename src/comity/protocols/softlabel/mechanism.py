"""Which noise guards a value that is bounded in L2."""

from __future__ import annotations

from math import sqrt

from comity.privacy.accounting import budget_to_rho
from comity.privacy.loss import Approx, Loss, Pure
from comity.privacy.mechanisms import Noise
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.spherical import Spherical


def mechanism(loss: Loss, size: int | None = None) -> Noise:
    """L2 noise for a loss: spherical when pure; with a δ Gaussian, or over few numbers whichever is quieter.

    Pure ε implies (ε, δ). Per unit of sensitivity a coordinate of spherical noise over `size` numbers deviates by
    √(size + 1)/ε and one of Gaussian noise by 1/√(2ρ): for a small ε and a few numbers the first is less.
    """
    if isinstance(loss, Pure):
        return Spherical(loss)
    rho = budget_to_rho(loss)
    if isinstance(loss, Approx) and size is not None:
        pure = Pure(loss.epsilon)
        if sqrt(size + 1) / float(pure.epsilon) < 1 / sqrt(2 * float(rho.rho)):
            return Spherical(pure)
    return Gaussian(rho)
