"""Faces of protocols for scikit-learn: thin, each fit a simulated run."""

from comity.estimators.averaging import AveragedClassifier, AveragedRegressor
from comity.estimators.softlabel import SoftLabelClassifier

__all__ = ["AveragedClassifier", "AveragedRegressor", "SoftLabelClassifier"]
