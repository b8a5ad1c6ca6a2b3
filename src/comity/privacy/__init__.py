"""Losses, their accounting, mechanisms, noise and ledgers.

    from comity.privacy import Gaussian, SeededNoise, budget_to_rho, loss_of, simulated_permit

    noise = Gaussian(budget_to_rho(loss_of(1.0, 1e-6)))
    scale = noise.scale(sensitivity=1.0, shape=(3,))
    noise.draw(SeededNoise(7), scale, (3,), permit=simulated_permit("sum")) * scale.grid

What draws noise takes a permit. A ledger gives one for each draw that it debits. `simulated_permit` makes one for noise
that is drawn in a simulation and protects nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazy_exports import export_lazily

if TYPE_CHECKING:
    from comity.privacy.accounting import Spent as Spent
    from comity.privacy.accounting import budget_to_rho as budget_to_rho
    from comity.privacy.accounting import gaussian_budget as gaussian_budget
    from comity.privacy.accounting import gdp_epsilon as gdp_epsilon
    from comity.privacy.accounting import zcdp_epsilon as zcdp_epsilon
    from comity.privacy.accounting import zcdp_rho as zcdp_rho
    from comity.privacy.ledger import Account as Account
    from comity.privacy.ledger import Draw as Draw
    from comity.privacy.ledger import Ledger as Ledger
    from comity.privacy.loss import GDP as GDP
    from comity.privacy.loss import ZCDP as ZCDP
    from comity.privacy.loss import Approx as Approx
    from comity.privacy.loss import Loss as Loss
    from comity.privacy.loss import Pure as Pure
    from comity.privacy.loss import loss_of as loss_of
    from comity.privacy.mechanisms import ExponentialMechanism as ExponentialMechanism
    from comity.privacy.mechanisms import Gaussian as Gaussian
    from comity.privacy.mechanisms import Laplace as Laplace
    from comity.privacy.mechanisms import NoisyCounts as NoisyCounts
    from comity.privacy.mechanisms import NoisyMax as NoisyMax
    from comity.privacy.mechanisms import NoisyThreshold as NoisyThreshold
    from comity.privacy.mechanisms import PrefixSums as PrefixSums
    from comity.privacy.mechanisms import Spherical as Spherical
    from comity.privacy.permit import Permit as Permit
    from comity.privacy.permit import simulated_permit as simulated_permit
    from comity.privacy.randomness import NoiseSource as NoiseSource
    from comity.privacy.randomness import ReleasedNoise as ReleasedNoise
    from comity.privacy.randomness import SeededNoise as SeededNoise
    from comity.privacy.unit import Neighbours as Neighbours
    from comity.privacy.unit import Unit as Unit

__all__ = [
    "GDP",
    "ZCDP",
    "Account",
    "Approx",
    "Draw",
    "ExponentialMechanism",
    "Gaussian",
    "Laplace",
    "Ledger",
    "Loss",
    "Neighbours",
    "NoiseSource",
    "NoisyCounts",
    "NoisyMax",
    "NoisyThreshold",
    "Permit",
    "PrefixSums",
    "Pure",
    "ReleasedNoise",
    "SeededNoise",
    "Spent",
    "Spherical",
    "Unit",
    "budget_to_rho",
    "gaussian_budget",
    "gdp_epsilon",
    "loss_of",
    "simulated_permit",
    "zcdp_epsilon",
    "zcdp_rho",
]

_HOMES = {
    "GDP": "comity.privacy.loss",
    "ZCDP": "comity.privacy.loss",
    "Account": "comity.privacy.ledger",
    "Approx": "comity.privacy.loss",
    "Draw": "comity.privacy.ledger",
    "ExponentialMechanism": "comity.privacy.mechanisms",
    "Gaussian": "comity.privacy.mechanisms",
    "Laplace": "comity.privacy.mechanisms",
    "Ledger": "comity.privacy.ledger",
    "Loss": "comity.privacy.loss",
    "Neighbours": "comity.privacy.unit",
    "NoiseSource": "comity.privacy.randomness",
    "NoisyCounts": "comity.privacy.mechanisms",
    "NoisyMax": "comity.privacy.mechanisms",
    "NoisyThreshold": "comity.privacy.mechanisms",
    "Permit": "comity.privacy.permit",
    "PrefixSums": "comity.privacy.mechanisms",
    "Pure": "comity.privacy.loss",
    "ReleasedNoise": "comity.privacy.randomness",
    "SeededNoise": "comity.privacy.randomness",
    "Spent": "comity.privacy.accounting",
    "Spherical": "comity.privacy.mechanisms",
    "Unit": "comity.privacy.unit",
    "budget_to_rho": "comity.privacy.accounting",
    "gaussian_budget": "comity.privacy.accounting",
    "gdp_epsilon": "comity.privacy.accounting",
    "loss_of": "comity.privacy.loss",
    "simulated_permit": "comity.privacy.permit",
    "zcdp_epsilon": "comity.privacy.accounting",
    "zcdp_rho": "comity.privacy.accounting",
}

__getattr__, __dir__ = export_lazily(globals(), _HOMES)
