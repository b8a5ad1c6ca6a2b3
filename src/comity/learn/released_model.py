"""What all released models have in common: the interface of scikit-learn, their rows, and their files.

A released model consists of published numbers. It does not inherit from scikit-learn, which takes longer to import than
a study of a few hundred parties takes to compute. It has the methods by which scikit-learn recognises an estimator, and
these import scikit-learn when they are called.

The files are `model.json` and, for weights, `weights.npz`; opening them runs no code (no pickle). `model.json` holds
the kind of model, its classes, and the encoding as options with the text of the schema. A folder may come from
anywhere: it is checked before use, and every fault in it is a `DataError`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from comity.artefacts.arrays import MAX_BYTES, read_arrays
from comity.artefacts.artefact import Card, read_document
from comity.data.encoding import Encoding
from comity.data.schemas.schema import Schema
from comity.errors import DataError, SchemaError
from comity.learn.newton import Floats
from comity.representation import html_table

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.utils import Tags

    from comity.learn.classifiers import ConstantClassifier, LinearClassifier
    from comity.learn.regressor import LinearRegressor

MAX_SHOWN: Final = 12
"""Weights that a page shows, the largest ones; all of them are in the model's file."""

PAGE: Final = "model.json"
WEIGHTS: Final = "weights.npz"
# A separate kind: a reader without feature maps must not apply the weights to plain rows.
MAPPED: Final = "linear after a feature map"
_FORMAT: Final = "comity-model"
_VERSION: Final = 1
_OPTIONS: Final = {"scaling": str, "rows": str, "intercept": bool, "bins": bool}

FILES: Final = (
    "`model.json` (kind, classes, encoding with its schema) and `weights.npz`; opening them runs no code. Use: "
    "`comity predict MODEL DATA`, or `comity.load_model(folder)` in Python."
)
USE: Final = (
    "The study file records no intended use; the parties that made the model decide on it. The guarantee limits what "
    "the model tells about its training records, not what it says about the people it is applied to. It was learned "
    "under the bounds and categories of its schema: values outside are clipped or mapped to `other`. Groups of people "
    "were not compared. Each further release from the same records adds to the loss above."
)


class ReleasedEstimator:
    """To scikit-learn a fitted classifier or regressor, whose parameters are its constructor's arguments."""

    estimates: ClassVar[Literal["classifier", "regressor"]]

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Return the model unchanged: a released model is not trained again."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, X: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} predicts nothing")

    @classmethod
    def _names(cls) -> list[str]:
        return sorted(name for name in inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments by name. `deep` adds nothing: none of them has parameters."""
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
        """Accuracy of a classifier, R² of a regressor."""
        from sklearn.metrics import accuracy_score, r2_score

        measure = accuracy_score if self.estimates == "classifier" else r2_score
        return float(measure(y, self.predict(X), sample_weight=sample_weight))

    def _repr_html_(self) -> str:
        """What the model is and its strongest weights, for a notebook."""
        model: Any = self
        dots = [dot for plot in model.section().plots for dot in getattr(plot, "dots", ())]
        rows = [(dot.label, f"{dot.value:.4g}") for dot in dots]
        return html_table(f"{type(self).__name__}: {model.card().what}", ("feature", "weight"), rows)

    def predict_frame(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Predictions as a table with the index of `frame` and, where it has one, the column that identifies records.

        model.predict_frame(frame).join(frame["ward"])
        """
        model: Any = self
        identifier = getattr(getattr(model.encoding, "schema", None), "identifier", None)
        kept = [identifier] if identifier in frame.columns else []
        return frame[kept].assign(**model.predict_table(frame))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={short(value)}" for name, value in self.get_params().items() if value is not None)
        return f"{type(self).__name__}({shown})"


def constant_of(constant: float | None, encoding: Any) -> float | None:
    """The value of the constant feature at the end of every row, as given or by the encoding; None without one.

    Its weight counts in the norm that a study bounds. Its weight times its value is the model's intercept.
    """
    return getattr(encoding, "constant", None) if constant is None else float(constant)


def has_intercept(constant: float | None, encoding: Any) -> bool:
    """Whether the last entry of a row is an intercept's: constant, or rescaled with its row."""
    return constant is not None or bool(getattr(encoding, "intercept", False))


def split_constant(weights: Floats, constant: float | None) -> tuple[Floats, Floats]:
    """Split weights (..., D) of rows that end in `constant` into coefficients (..., d) and intercepts (...)."""
    if constant is None:
        return weights, np.zeros(weights.shape[:-1])
    return weights[..., :-1], weights[..., -1] * constant


def encoded_rows(X: Any, width: int, constant: float | None, encoding: Any) -> Floats:
    """Rows of `width` entries from a frame of raw columns, from encoded rows, or from encoded rows without their
    constant."""
    # Imported here: a plan loads this module, and reads no tables.
    import pandas as pd

    if encoding is not None and isinstance(X, pd.DataFrame):
        rows = np.asarray(encoding.encode_features(X), np.float64)
    else:
        try:
            rows = np.asarray(X, np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"the model expects rows of {width} numbers, found something else ({error}); "
                "encode the records first, or give the model its encoding"
            ) from error
    if constant is not None and rows.ndim == 2 and rows.shape[1] == width - 1:
        rows = np.column_stack([rows, np.full(len(rows), constant)])
    if rows.ndim != 2 or rows.shape[1] != width:
        also = "" if constant is None else f", or of {width - 1} without the constant one"
        raise DataError(f"the model expects rows of {width} features, shape (n, {width}){also}; found {rows.shape}")
    if not np.isfinite(rows).all():
        raise DataError("the rows hold NaN or infinity; fill missing values by the schema's policy first")
    return rows


def write_page(folder: Path, kind: str, classes: Iterable[Any], **content: Any) -> None:
    page = {"format": _FORMAT, "version": _VERSION, "classes": list(map(_scalar, classes)), "kind": kind, **content}
    text = json.dumps(page, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / PAGE).write_text(text + "\n", encoding="utf-8")


def read_page(folder: Path) -> dict[str, Any]:
    """The page of a model, with classes that are labels."""
    path, remedy = folder / PAGE, "give the folder of a released model"
    page = read_document(path, "model", remedy, form=_FORMAT, version=_VERSION, max_bytes=MAX_BYTES)
    classes = read_value(page, "classes", list, path)
    if any(not isinstance(label, str | int | float) for label in classes) or len(set(classes)) != len(classes):
        raise DataError(f"{path}: classes must be different strings or numbers, found {classes}; fetch the model again")
    read_value(page, "kind", str, path)
    return page


def read_value(page: dict[str, Any], key: str, kind: type, path: Path, what: str = "model") -> Any:
    """The value of a key, if it is of this kind. True and False are no numbers."""
    value = page.get(key)
    if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
        raise DataError(f"{path}: {key} must be a {kind.__name__}, found {value!r}; fetch the {what} again")
    return value


def encoding_as_page(encoding: Any) -> dict[str, Any] | None:
    if encoding is None:
        return None
    if not isinstance(encoding, Encoding):
        raise DataError(f"only an encoding built from a schema can be stored, found {type(encoding).__name__}")
    return {"schema": encoding.schema.to_toml()} | {key: getattr(encoding, key) for key in _OPTIONS}


def read_encoding(page: dict[str, Any], path: Path, what: str = "model") -> Encoding | None:
    if page.get("encoding") is None:
        return None
    stored = read_value(page, "encoding", dict, path, what)
    text = read_value(stored, "schema", str, path, what)
    options: dict[str, Any] = {key: read_value(stored, key, kind, path, what) for key, kind in _OPTIONS.items()}
    try:
        return Encoding(Schema.parse(text, f"{path}, schema"), **options)
    except SchemaError as error:
        raise DataError(f"{path}: the encoding can't be used ({error}); fetch the {what} again") from error


@dataclass(frozen=True, eq=False)
class StoredModel:
    """The files of a model with weights, read and checked. `arrays` are those beside the weights."""

    path: Path
    page: dict[str, Any]
    coef: Floats
    arrays: dict[str, NDArray[Any]]
    encoding: Encoding | None
    constant: float | None

    @classmethod
    def read(cls, folder: Path) -> StoredModel:
        path, page = folder / PAGE, read_page(folder)
        coef, arrays = _read_weights(folder, page)
        return cls(path, page, coef, arrays, read_encoding(page, path), _read_constant(page, path))

    def check(self, validate: Callable[[], object], width: Callable[[], int]) -> None:
        """Run the model's own check, and compare the width of its rows with the encoding's."""
        check_file(self.path, validate)
        if self.encoding is not None and self.encoding.width != width():
            raise DataError(
                f"{self.path}: the schema encodes {self.encoding.width} features and the weights are for {width()}; "
                "the two files are not of one model, fetch it again"
            )


def write_model(
    folder: Path,
    kind: str,
    classes: Iterable[Any],
    arrays: Mapping[str, Any],
    *,
    encoding: Any,
    constant: float | None,
    **content: Any,
) -> None:
    """Write a model whose weights are `arrays["coef"]`."""
    stored, shape = encoding_as_page(encoding), list(arrays["coef"].shape)
    np.savez(folder / WEIGHTS, **arrays)
    beside = {} if constant is None else {"constant": float(constant)}
    write_page(folder, kind, classes, **content, shape=shape, encoding=stored, **beside)


def _read_constant(page: dict[str, Any], path: Path) -> float | None:
    """The value of a constant feature that no encoding declares. Models of earlier releases have none."""
    if page.get("constant") is None:
        return None
    value = read_value(page, "constant", float, path)
    if not np.isfinite(value):
        raise DataError(f"{path}: constant must be finite, found {value}; fetch the model again")
    return float(value)


def _read_weights(folder: Path, page: dict[str, Any]) -> tuple[Floats, dict[str, NDArray[Any]]]:
    path, shape = folder / WEIGHTS, read_value(page, "shape", list, folder / PAGE)
    arrays = read_arrays(path)
    if "coef" not in arrays:
        raise DataError(f"{path}: holds no array 'coef', found {', '.join(arrays) or 'none'}; fetch the model again")
    coef, others = arrays["coef"], {name: one for name, one in arrays.items() if name != "coef"}
    if coef.dtype != np.float64 or list(coef.shape) != shape or coef.ndim != 2 or not np.isfinite(coef).all():
        raise DataError(
            f"{path}: expected finite float64 weights of shape {shape}, found {coef.dtype} of "
            f"{list(coef.shape)}; fetch the model again"
        )
    return np.asarray(coef, np.float64), others


def check_file(path: Path, check: Callable[[], object]) -> None:
    """Run a model's own check; its error names the file."""
    try:
        check()
    except DataError as error:
        raise DataError(f"{path}: {error}; fetch the model again") from error


def describe_input(encoding: Any) -> str:
    if not isinstance(encoding, Encoding):
        return "Encoded rows of norm at most 1, in the order in which the parties encoded theirs."
    columns = ", ".join(f"`{column.name}`" for column in encoding.schema.columns)
    return f"A table with the columns {columns}, as `model.json` describes them (bounds, categories, missing values)."


def model_card(what: str, encoding: Any) -> Card:
    parts = {"Input": describe_input(encoding), "Intended use and limits": USE, "Files": FILES}
    return Card("released model", what, "learned", parts)


def _scalar(label: Any) -> str | int | float | bool:
    value = label.item() if isinstance(label, np.generic) else label
    if not isinstance(value, str | int | float):
        raise DataError(f"a class label must be a string or a number to be stored, found {label!r}")
    return value


def load_model(folder: str | Path) -> LinearClassifier | ConstantClassifier | LinearRegressor:
    """The model that its `save` wrote into `folder`.

        model = comity.load_model("runs/triage/model")
        model.predict(frame)

    Anything else is a `DataError`. Loading runs no code of the folder.
    """
    from comity.learn.classifiers import ConstantClassifier, LinearClassifier
    from comity.learn.regressor import LinearRegressor

    kinds: dict[str, type[LinearClassifier | ConstantClassifier | LinearRegressor]] = {
        "linear": LinearClassifier,
        MAPPED: LinearClassifier,
        "regression": LinearRegressor,
        "constant": ConstantClassifier,
    }
    folder = Path(folder)
    kind = read_page(folder)["kind"]
    if kind not in kinds:
        known = ", ".join(map(repr, kinds))
        raise DataError(f"{folder / PAGE}: kind must be one of {known}, found {kind!r}; a newer comity may know it")
    return kinds[kind].load(folder)
