"""Solvers and models that protocols share: pure functions of arrays, no sites, no noise.

Models take longer to import than a plan to make, those of scikit-learn most of all: they are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazily import lazily
from comity.learn.fitting.fit import Fit
from comity.learn.fitting.logistic import logistic
from comity.learn.fitting.norm_bound import minimiser_radius, vector_radius
from comity.learn.fitting.softmax import softmax
from comity.learn.released.feature_map import FeatureMap
from comity.learn.voters.voting import hard_votes, one_hot

if TYPE_CHECKING:
    from comity.learn.released.classifiers import ConstantClassifier as ConstantClassifier
    from comity.learn.released.classifiers import LinearClassifier as LinearClassifier
    from comity.learn.released.regressor import LinearRegressor as LinearRegressor
    from comity.learn.released.storage import load_model as load_model
    from comity.learn.voters.local_model import LocalModel as LocalModel
    from comity.learn.voters.local_model import from_callable as from_callable
    from comity.learn.voters.local_model import from_estimator as from_estimator
    from comity.learn.voters.local_model import from_predictions as from_predictions
    from comity.learn.voters.named_model import named as named
    from comity.learn.voters.soft_labels import fit_on_soft_labels as fit_on_soft_labels

__all__ = [
    "ConstantClassifier",
    "FeatureMap",
    "Fit",
    "LinearClassifier",
    "LinearRegressor",
    "LocalModel",
    "fit_on_soft_labels",
    "from_callable",
    "from_estimator",
    "from_predictions",
    "hard_votes",
    "load_model",
    "logistic",
    "minimiser_radius",
    "named",
    "one_hot",
    "softmax",
    "vector_radius",
]

_HOMES = {
    "ConstantClassifier": "comity.learn.released.classifiers",
    "LinearClassifier": "comity.learn.released.classifiers",
    "LinearRegressor": "comity.learn.released.regressor",
    "LocalModel": "comity.learn.voters.local_model",
    "fit_on_soft_labels": "comity.learn.voters.soft_labels",
    "from_callable": "comity.learn.voters.local_model",
    "from_estimator": "comity.learn.voters.local_model",
    "from_predictions": "comity.learn.voters.local_model",
    "load_model": "comity.learn.released.storage",
    "named": "comity.learn.voters.named_model",
}


__getattr__, __dir__ = lazily(globals(), _HOMES)
