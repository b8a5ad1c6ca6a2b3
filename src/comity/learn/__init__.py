"""Solvers and models that protocols share: pure functions of arrays, no sites, no noise.

Models take longer to import than a plan to make, those of scikit-learn most of all: they are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazily import lazily
from comity.learn.feature_map import FeatureMap
from comity.learn.fit import Fit
from comity.learn.logistic import logistic
from comity.learn.norm_bound import minimiser_radius, vector_radius
from comity.learn.softmax import softmax
from comity.learn.voting import hard_votes, one_hot

if TYPE_CHECKING:
    from comity.learn.local_model import LocalModel as LocalModel
    from comity.learn.local_model import from_callable as from_callable
    from comity.learn.local_model import from_estimator as from_estimator
    from comity.learn.local_model import from_predictions as from_predictions
    from comity.learn.models import ConstantClassifier as ConstantClassifier
    from comity.learn.models import LinearClassifier as LinearClassifier
    from comity.learn.named_model import named as named
    from comity.learn.regressor import LinearRegressor as LinearRegressor
    from comity.learn.soft_labels import fit_on_soft_labels as fit_on_soft_labels
    from comity.learn.storage import load_model as load_model

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
    "ConstantClassifier": "comity.learn.models",
    "LinearClassifier": "comity.learn.models",
    "LinearRegressor": "comity.learn.regressor",
    "LocalModel": "comity.learn.local_model",
    "fit_on_soft_labels": "comity.learn.soft_labels",
    "from_callable": "comity.learn.local_model",
    "from_estimator": "comity.learn.local_model",
    "from_predictions": "comity.learn.local_model",
    "load_model": "comity.learn.storage",
    "named": "comity.learn.named_model",
}


__getattr__, __dir__ = lazily(globals(), _HOMES)
