"""Solvers and released models that methods share: pure functions of arrays, without sites and without noise.

Models take longer to import than a plan takes to make: they are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazy_exports import export_lazily
from comity.learn.feature_map import FeatureMap, fit_pca
from comity.learn.fits import Fit, Logistic, SmoothedHinge, fit_logistic, fit_softmax, hard_votes, one_hot
from comity.learn.norm_bound import minimiser_radius, vector_radius

if TYPE_CHECKING:
    from comity.learn.classifiers import ConstantClassifier as ConstantClassifier
    from comity.learn.classifiers import LinearClassifier as LinearClassifier
    from comity.learn.local_models import LocalModel as LocalModel
    from comity.learn.local_models import from_callable as from_callable
    from comity.learn.local_models import from_estimator as from_estimator
    from comity.learn.local_models import from_name as from_name
    from comity.learn.local_models import from_predictions as from_predictions
    from comity.learn.local_models import linear_votes as linear_votes
    from comity.learn.local_models import linear_weights as linear_weights
    from comity.learn.record_sum import in_unit_ball as in_unit_ball
    from comity.learn.regressor import LinearRegressor as LinearRegressor
    from comity.learn.released_model import load_model as load_model
    from comity.learn.soft_labels import fit_on_soft_labels as fit_on_soft_labels

__all__ = [
    "ConstantClassifier",
    "FeatureMap",
    "Fit",
    "LinearClassifier",
    "LinearRegressor",
    "LocalModel",
    "Logistic",
    "SmoothedHinge",
    "fit_logistic",
    "fit_on_soft_labels",
    "fit_pca",
    "fit_softmax",
    "from_callable",
    "from_estimator",
    "from_name",
    "from_predictions",
    "hard_votes",
    "in_unit_ball",
    "linear_votes",
    "linear_weights",
    "load_model",
    "minimiser_radius",
    "one_hot",
    "vector_radius",
]

_HOMES = {
    "ConstantClassifier": "comity.learn.classifiers",
    "LinearClassifier": "comity.learn.classifiers",
    "LinearRegressor": "comity.learn.regressor",
    "LocalModel": "comity.learn.local_models",
    "in_unit_ball": "comity.learn.record_sum",
    "fit_on_soft_labels": "comity.learn.soft_labels",
    "from_callable": "comity.learn.local_models",
    "from_estimator": "comity.learn.local_models",
    "from_predictions": "comity.learn.local_models",
    "linear_votes": "comity.learn.local_models",
    "linear_weights": "comity.learn.local_models",
    "load_model": "comity.learn.released_model",
    "from_name": "comity.learn.local_models",
}


__getattr__, __dir__ = export_lazily(globals(), _HOMES)
