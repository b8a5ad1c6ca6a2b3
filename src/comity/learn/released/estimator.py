"""What scikit-learn asks of an estimator, for models that are made of published numbers alone.

scikit-learn takes longer to import than a study of a few hundred parties to compute, and a run that makes, measures and
saves a linear model needs none of it. So released models do not inherit from it: they have the methods by which it
knows an estimator (`get_params`, `set_params`, tags, `score`, `fit`), which import it where it is in use already.
"""

from __future__ import annotations

import inspect
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

if TYPE_CHECKING:
    from sklearn.utils import Tags


class ReleasedEstimator:
    """A fitted classifier or regressor to scikit-learn, whose parameters are the arguments of its constructor."""

    estimates: ClassVar[Literal["classifier", "regressor"]]

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Returns the model as it is: a released model is not trained again."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, X: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} predicts nothing")

    @classmethod
    def _names(cls) -> list[str]:
        return sorted(name for name in inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments by name. None of them has parameters of its own, so `deep` finds no more."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> Self:
        known = self._names()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"{type(self).__name__} has the parameters {', '.join(known)}, found {name!r}")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Tags:
        from sklearn.utils import ClassifierTags, RegressorTags, Tags, TargetTags

        classifies = self.estimates == "classifier"
        return Tags(
            estimator_type=self.estimates,
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags() if classifies else None,
            regressor_tags=None if classifies else RegressorTags(),
        )

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of records that is predicted rightly; of a regression, R²."""
        from sklearn.metrics import accuracy_score, r2_score

        measure = accuracy_score if self.estimates == "classifier" else r2_score
        return float(measure(y, self.predict(X), sample_weight=sample_weight))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={short(value)}" for name, value in self.get_params().items() if value is not None)
        return f"{type(self).__name__}({shown})"
