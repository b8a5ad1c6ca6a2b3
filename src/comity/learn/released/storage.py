"""Released models from their folders, whichever kind they are of."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from comity.errors import DataError
from comity.learn.released.classifiers import MAPPED, ConstantClassifier, LinearClassifier
from comity.learn.released.model_page import PAGE, read_page
from comity.learn.released.regressor import LinearRegressor

Model = LinearClassifier | ConstantClassifier | LinearRegressor

_KINDS: Final[dict[str, type[Model]]] = {
    "linear": LinearClassifier,
    MAPPED: LinearClassifier,
    "regression": LinearRegressor,
    "constant": ConstantClassifier,
}


def load_model(folder: str | Path) -> Model:
    """The model that its `save` wrote into `folder`."""
    folder = Path(folder)
    kind = read_page(folder)["kind"]
    if kind not in _KINDS:
        known = ", ".join(map(repr, _KINDS))
        raise DataError(f"{folder / PAGE}: kind must be one of {known}, found {kind!r}; a newer comity may know it")
    return _KINDS[kind].load(folder)
