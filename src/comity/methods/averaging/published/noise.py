"""The noise of the published average: its scale, its true loss, and its grid.

The published noise is scaled for the mean of K models by 2/(n ε λ), with n the records of the smallest party. Here
everything is in units of the *sum* of the models, K times the mean: noise of scale 2K/(n ε λ) is drawn on the grid of
the sum. Drawing it on the grid of the mean and multiplying by K would leave the exact sum modulo
K in what is published (published/proof.md, 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, sqrt
from typing import Literal

from comity.errors import StudyError
from comity.privacy.loss import Loss, Pure
from comity.privacy.mechanisms import Noise
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.mechanisms.scale import FINENESS, grid_at_most
from comity.privacy.mechanisms.spherical import Spherical

# Gradient norm at which a solver stops; each of two neighbours may be off by this over the strong convexity.
TOLERANCE = 1e-10
# Above the error of the two one-dimensional searches below.
_UP = 1 + 1e-9

Kind = Literal["spherical", "literal"]


@dataclass(frozen=True)
class PublishedNoise:
    """Noise for the sum of `parties` models of `width` weights with penalty `l2`, at the ε of a study.

    spherical  density ∝ exp(−|z|₂/β): ε-DP for every party, because replacing a record of a party with n records moves
               the sum by c/(nλ) + 2τ/λ <= 2K/(nλ) at most in L2. What is lost is less, `true_epsilon`.
    literal    independent Laplace coordinates of the same scale, as printed. The bound on the sum holds in L2, and in
               L1 only times sqrt(d): the loss is `true_epsilon`, which exceeds ε as soon as c·sqrt(d) > 2K.
    """

    kind: Kind
    parties: int
    width: int
    l2: float
    epsilon: float
    most: int

    @property
    def true_epsilon(self) -> float:
        """The most that a record loses to a reader who did not draw the noise: ε·(c + 2τn)/(2K(1 + τn)), and sqrt(d)
        times that for literal noise, where one record moves all weights alike. It rises with the number n of records of
        the smallest party, and is approached where all parties have as many (published/proof.md, 2)."""
        inexact = TOLERANCE * self.most
        used = (gradient_diameter(self.l2) + 2 * inexact) / (2 * self.parties * (1 + inexact))
        return self.epsilon * used * (1.0 if self.kind == "spherical" else sqrt(self.width)) * _UP

    def sensitivity(self, records: int) -> float:
        """As published: what the noise of a party with this many records is scaled for, in the norm of that noise.

        Sizes enter between 1 and `most`: a party without records has a model to hide too, and one with more than `most`
        gets more noise than it needs, not less.
        """
        counted = min(max(records, 1), self.most)
        scaled_for = self.parties * (2.0 / (counted * self.l2) + 2.0 * TOLERANCE / self.l2)
        return scaled_for if self.kind == "spherical" else scaled_for * self.true_epsilon / self.epsilon

    @property
    def mechanism(self) -> Noise:
        return Spherical(Pure(self.epsilon)) if self.kind == "spherical" else Laplace(Pure(self.true_epsilon))

    @property
    def grid(self) -> float:
        """Public and common to all parties, hence fine enough for the largest."""
        finest = FINENESS * self.width * max(1.0, self.epsilon / 100)
        return grid_at_most(self.sensitivity(self.most) / finest)


def pure_epsilon(loss: Loss) -> float:
    if not isinstance(loss, Pure):
        raise StudyError(
            "the published average has a pure guarantee; leave privacy.delta out, or choose another variant",
            key="privacy.delta",
        )
    return float(loss.epsilon)


def gradient_diameter(l2: float) -> float:
    """c(λ): how far apart the gradients of two records' logistic losses can be, at weights that a fit can have.

    A gradient is −σ(−w·u)·u with u = y·x in the unit ball, and |w| <= R with λR = max_a a·σ(−Ra) over a <= 1. At
    |w| = r two records that lie symmetrically about −w, at the angle t, are 2·sin t·σ(r·cos t) apart, which is largest
    for r = R. The paper takes 2, the limit for λ → 0.
    """
    from scipy.optimize import minimize_scalar

    radius = _max_fit_norm(l2)
    found = minimize_scalar(lambda t: -2 * _sine(t) * _sigmoid(radius * t), bounds=(0.0, 1.0), method="bounded")
    return min(2.0, float(-found.fun) * _UP)


def _max_fit_norm(l2: float) -> float:
    from scipy.optimize import brentq

    def pulled(radius: float) -> float:
        # a·σ(−Ra) rises up to Ra = 1.2785 and falls afterwards.
        a = min(1.0, 1.2784645427610738 / radius)
        return a * _sigmoid(-radius * a) - l2 * radius

    return float(brentq(pulled, 1e-12, 1.0 / l2 + 1.0)) * _UP


def _sine(cosine: float) -> float:
    return sqrt(max(0.0, 1.0 - cosine * cosine))


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + exp(-x)) if x > -700 else 0.0


def literal_claim(noise: PublishedNoise) -> str:
    """The claim of a declaration with literal noise."""
    asked, true = f"eps {noise.epsilon:.4g}", f"eps {noise.true_epsilon:.4g}"
    if noise.true_epsilon > noise.epsilon:
        return (
            f"not private as claimed: independent Laplace noise is scaled for an L2 bound as if it held in L1; {asked} "
            f"is claimed and {true} is lost by {noise.width} weights in {noise.parties} models"
        )
    return (
        "not private as claimed: the published proof takes an L2 bound for one in L1; only the factor of "
        f"{noise.parties} parties, which it leaves unused, keeps the loss at {true} where {asked} is claimed"
    )
