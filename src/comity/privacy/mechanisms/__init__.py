"""Mechanisms: what each adds, what that promises, and why. The longer proofs are in proof.md."""

from comity.privacy.mechanisms.computations import ExponentialMechanism, NoisyCounts, NoisyMax, NoisyThreshold
from comity.privacy.mechanisms.gaussian import Gaussian
from comity.privacy.mechanisms.laplace import Laplace
from comity.privacy.mechanisms.prefix_sums import PrefixSums
from comity.privacy.mechanisms.sarpatwar import MeanWeights, RankCoins
from comity.privacy.mechanisms.scale import Noise, Scale
from comity.privacy.mechanisms.spherical import Spherical

__all__ = [
    "ExponentialMechanism",
    "Gaussian",
    "Laplace",
    "MeanWeights",
    "Noise",
    "NoisyCounts",
    "NoisyMax",
    "NoisyThreshold",
    "PrefixSums",
    "RankCoins",
    "Scale",
    "Spherical",
]
