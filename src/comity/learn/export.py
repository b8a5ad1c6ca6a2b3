"""Released linear models as files for other programs: ONNX, and skops for scikit-learn.

Both formats are read without running code of the file. An export is made of released numbers alone, so it costs
nothing; it carries the text of the guarantee, because a file is passed on without its run folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from comity.data import Encoding
from comity.errors import BadInput, DataError
from comity.files import write_file
from comity.learn.classifiers import LinearClassifier
from comity.learn.regressor import LinearRegressor

FORMATS: Final = {"onnx": "onnx", "skops": "skops.io"}
"""The formats, each with the package that writes it."""


def export_model(model: Any, path: Path, about: Mapping[str, str], form: str | None = None) -> Path:
    """Write a released linear model to `path`, with `about` as its metadata. The suffix names the format where `form`
    does not."""
    chosen = form or path.suffix.removeprefix(".")
    if chosen not in FORMATS:
        raise BadInput(f"{path}: expected a file that ends in .onnx or .skops, found {path.name!r}; choose one of them")
    check_exported(model)
    try:
        import_module(FORMATS[chosen])
    except ImportError as error:
        raise BadInput(
            f"to write {chosen} files the package {chosen} is needed, which is not installed ({error}); install it "
            "with: pip install 'comity[export]'"
        ) from error
    if chosen == "onnx":
        from comity.learn.onnx_graph import build_onnx

        content = build_onnx(model, about)
    else:
        content = _dump_skops(model, about)
    try:
        write_file(path, content)
    except OSError as error:
        raise BadInput(f"{path}: can't be written ({error.strerror or error}); choose another file") from error
    return path


def check_exported(model: Any) -> None:
    """Refuse what has no such form."""
    if not isinstance(model, LinearClassifier | LinearRegressor):
        raise DataError(
            f"an export is for released linear models, found {type(model).__name__}; a dataset or a summary is a table "
            "already, in the folder of its run"
        )
    if isinstance(model, LinearClassifier) and model.feature_map is not None and model.feature_map.affine is None:
        raise DataError(
            "the model has a feature map that is not linear, which is exported to no other format; use it with: comity "
            "predict"
        )


def _dump_skops(model: LinearClassifier | LinearRegressor, about: Mapping[str, str]) -> bytes:
    """A fitted scikit-learn model over the columns of `model.encode(frame)`. Its attribute `comity_` has the metadata,
    `feature_names_` the names of its columns."""
    import numpy as np
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from skops.io import dumps

    made: Any
    if isinstance(model, LinearClassifier):
        made = LogisticRegression()
        made.classes_ = model.classes_
        made.n_iter_ = np.zeros(1, np.int32)
    else:
        made = LinearRegression()
    made.coef_, made.intercept_ = model.coef_, model.intercept_
    made.n_features_in_ = model.coef_.shape[-1]
    if isinstance(model.encoding, Encoding):
        made.feature_names_ = list(model.encoding.names[: made.n_features_in_])
    made.comity_ = dict(about)
    content: bytes = dumps(made)
    return content
