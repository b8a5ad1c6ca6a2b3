"""Solvers and models that protocols share: pure functions of arrays, no sites, no noise."""

from __future__ import annotations

from comity.learn.fit import Fit
from comity.learn.logistic import logistic
from comity.learn.models import ConstantClassifier, LinearClassifier
from comity.learn.norm_bound import minimiser_radius, vector_radius
from comity.learn.softmax import softmax
from comity.learn.storage import load_model, save_model
from comity.learn.voting import hard_votes, one_hot

__all__ = [
    "ConstantClassifier",
    "Fit",
    "LinearClassifier",
    "hard_votes",
    "load_model",
    "logistic",
    "minimiser_radius",
    "one_hot",
    "save_model",
    "softmax",
    "vector_radius",
]
