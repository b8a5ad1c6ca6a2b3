"""Which noise guards a value that is bounded in L2, and perhaps in L1."""

from __future__ import annotations

from math import inf, sqrt

from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import Approx, Loss, Pure
from comity.privacy.mechanisms import Noise
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.mechanisms.spherical import Spherical


def mechanism(loss: Loss, size: int | None = None, *, l1: float = inf) -> Noise:
    """Noise for a loss: spherical when pure; with a δ Gaussian; over few numbers whichever is quietest.

    Pure ε implies (ε, δ). Per unit of sensitivity in L2 a coordinate of spherical noise over `size` numbers deviates by
    √(size + 1)/ε and one of Gaussian noise by 1/μ: for a small ε and a few numbers the first is less. Laplace noise
    deviates by √2·l1/ε, where l1 is the sensitivity in L1 per unit of that in L2.
    """
    if size is None or not isinstance(loss, Pure | Approx):
        return Spherical(loss) if isinstance(loss, Pure) else Gaussian(gaussian_budget(loss))
    pure = loss if isinstance(loss, Pure) else Pure(loss.epsilon)
    found: dict[float, Noise] = {
        sqrt(2) * l1 / float(pure.epsilon): Laplace(pure),
        sqrt(size + 1) / float(pure.epsilon): Spherical(pure),
    }
    if isinstance(loss, Approx):
        bought = gaussian_budget(loss)
        found[1 / sqrt(float(bought.square))] = Gaussian(bought)
    return found[min(found)]
