"""scikit-learn estimators: each fit simulates a run. The methods' entries list them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comity.methods import entries, load_object

if TYPE_CHECKING:
    from comity.estimators.averaging import AveragedClassifier as AveragedClassifier
    from comity.estimators.averaging import AveragedRegressor as AveragedRegressor
    from comity.estimators.softlabel import SoftLabelClassifier as SoftLabelClassifier
    from comity.estimators.vertical import VerticalClassifier as VerticalClassifier
    from comity.estimators.vertical import VerticalRegressor as VerticalRegressor

_HOMES = {name: home for entry in entries().values() for name, home in entry.estimators.items()}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load_object(_HOMES[name])
