"""Solvers and models that protocols share: pure functions of arrays, no sites, no noise."""

from __future__ import annotations

from comity.learn.feature_map import FeatureMap
from comity.learn.fit import Fit
from comity.learn.local_model import LocalModel, from_callable, from_estimator, from_predictions
from comity.learn.logistic import logistic
from comity.learn.models import ConstantClassifier, LinearClassifier
from comity.learn.named_model import named
from comity.learn.norm_bound import minimiser_radius, vector_radius
from comity.learn.regressor import LinearRegressor
from comity.learn.soft_labels import fit_on_soft_labels
from comity.learn.softmax import softmax
from comity.learn.storage import load_model, save_model
from comity.learn.voting import hard_votes, one_hot

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
    "save_model",
    "softmax",
    "vector_radius",
]
