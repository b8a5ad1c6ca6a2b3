"""Exact figures about the fitted records: for the process that fitted, and for nobody to whom the estimator is given.

Promise    A figure is kept beside the estimator, not in it: pickles, copies, clones, saved models, `vars` and every
           `repr` are without it, so that a private model can be handed on as it is.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload
from weakref import WeakKeyDictionary

Value = TypeVar("Value")

_FIGURES: WeakKeyDictionary[object, dict[str, Any]] = WeakKeyDictionary()


class ExactFigure(Generic[Value]):
    """An attribute of an estimator that was read off its records."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> ExactFigure[Value]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...
    def __get__(self, instance: object | None, owner: type) -> ExactFigure[Value] | Value:
        if instance is None:
            return self
        try:
            found: Value = _FIGURES[instance][self._name]
        except KeyError:
            raise AttributeError(
                f"{owner.__name__}.{self._name} is an exact figure about the fitted records: it exists after fit, in "
                "the object that was fitted, and not in copies, pickles or saved models; fit where the records are"
            ) from None
        return found

    def __set__(self, instance: object, value: Value) -> None:
        _FIGURES.setdefault(instance, {})[self._name] = value
