"""Faces of protocols for scikit-learn: thin, each fit a simulated run."""

from comity.estimators.averaging import AveragedClassifier, AveragedRegressor
from comity.estimators.softlabel import SoftLabelClassifier
from comity.estimators.vertical import VerticalClassifier, VerticalRegressor

__all__ = ["AveragedClassifier", "AveragedRegressor", "SoftLabelClassifier", "VerticalClassifier", "VerticalRegressor"]
