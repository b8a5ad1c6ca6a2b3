"""Which noise guards a value that is bounded in L2."""

from __future__ import annotations

from comity.privacy.accounting import budget_to_rho
from comity.privacy.loss import Loss, Pure
from comity.privacy.mechanisms import Noise
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.spherical import Spherical


def mechanism(loss: Loss) -> Noise:
    """L2 noise for a loss: spherical when pure, Gaussian otherwise."""
    return Spherical(loss) if isinstance(loss, Pure) else Gaussian(budget_to_rho(loss))
