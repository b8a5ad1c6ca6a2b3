"""The files of a released model: `model.json` and, for weights, `weights.npz`. Opening them runs no code (no pickle).

`model.json` is readable by itself: the kind of model, its classes, and the encoding as its options with the text of
the schema. A folder comes from somewhere else and is checked before use; whatever is wrong with it is a `DataError`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from comity.artefacts.arrays import MOST_BYTES, read_arrays
from comity.data.encoding import Encoding
from comity.data.schemas.schema import Schema
from comity.errors import DataError, SchemaError
from comity.learn.fitting.newton import Floats

PAGE: Final = "model.json"
WEIGHTS: Final = "weights.npz"
_FORMAT: Final = "comity-model"
_VERSION: Final = 1
_OPTIONS: Final = {"scaling": str, "rows": str, "intercept": bool, "bins": bool}

FILES: Final = (
    "`model.json` (kind, classes, encoding with its schema) and `weights.npz`; no code is run by opening them. Use: "
    "`comity predict MODEL DATA`, or `comity.load_model(folder)` in Python."
)
"""What a model's card says of its files."""
USE: Final = (
    "The study file records no intended use; the parties that made the model decide on it. The guarantee is about what "
    "the model tells of its sources, not about what it says of the people it is applied to. It was learned under the "
    "bounds and categories of its schema: values outside are clipped or mapped to `other`. Groups of people were not "
    "compared. Each further release from the same records adds to the loss above."
)
"""What a model's card says of its use and limits."""


def write_page(folder: Path, kind: str, classes: Iterable[Any], **content: Any) -> None:
    page = {"format": _FORMAT, "version": _VERSION, "classes": list(map(_scalar, classes)), "kind": kind, **content}
    text = json.dumps(page, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / PAGE).write_text(text + "\n", encoding="utf-8")


def read_page(folder: Path) -> dict[str, Any]:
    """The page of a model, with classes that are labels."""
    path = folder / PAGE
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path}: is larger than any model's page; give the folder of a released model")
        page = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: no model can be read here ({error}); give the folder of a released model") from error
    if not isinstance(page, dict) or page.get("format") != _FORMAT or page.get("version") != _VERSION:
        raise DataError(
            f"{path}: expected format {_FORMAT!r}, version {_VERSION}; it is of another program, or of a newer comity"
        )
    classes = get(page, "classes", list, path)
    if any(not isinstance(label, str | int | float) for label in classes) or len(set(classes)) != len(classes):
        raise DataError(f"{path}: classes must be different strings or numbers, found {classes}; fetch the model again")
    get(page, "kind", str, path)
    return page


def get(page: dict[str, Any], key: str, kind: type, path: Path) -> Any:
    value = page.get(key)
    if not isinstance(value, kind):
        raise DataError(f"{path}: {key} must be a {kind.__name__}, found {value!r}; fetch the model again")
    return value


def encoding_page(encoding: Any) -> dict[str, Any] | None:
    if encoding is None:
        return None
    if not isinstance(encoding, Encoding):
        raise DataError(f"only an encoding built from a schema can be stored, found {type(encoding).__name__}")
    return {"schema": encoding.schema.to_toml()} | {key: getattr(encoding, key) for key in _OPTIONS}


def read_encoding(page: dict[str, Any], path: Path) -> Encoding | None:
    if page.get("encoding") is None:
        return None
    stored = get(page, "encoding", dict, path)
    text = get(stored, "schema", str, path)
    options: dict[str, Any] = {key: get(stored, key, kind, path) for key, kind in _OPTIONS.items()}
    try:
        return Encoding(Schema.parse(text, f"{path}, schema"), **options)
    except SchemaError as error:
        raise DataError(f"{path}: the model's encoding can't be used ({error}); fetch the model again") from error


def read_constant(page: dict[str, Any], path: Path) -> float | None:
    """The value of a constant feature that no encoding tells of; models of earlier releases have none."""
    if page.get("constant") is None:
        return None
    value = get(page, "constant", float, path)
    if not np.isfinite(value):
        raise DataError(f"{path}: constant must be finite, found {value}; fetch the model again")
    return float(value)


def read_weights(folder: Path, page: dict[str, Any]) -> tuple[Floats, dict[str, NDArray[Any]]]:
    """The weights, and the other arrays beside them."""
    path, shape = folder / WEIGHTS, get(page, "shape", list, folder / PAGE)
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


def require_width(encoding: Encoding | None, features: int, path: Path) -> None:
    if encoding is not None and encoding.width != features:
        raise DataError(
            f"{path}: the schema encodes {encoding.width} features and the weights are for {features}; "
            "the two files are not of one model, fetch it again"
        )


def checked(path: Path, look: Callable[[], object]) -> None:
    """What a model finds wrong with itself, named by its file."""
    try:
        look()
    except DataError as error:
        raise DataError(f"{path}: {error}; fetch the model again") from error


def input_of(encoding: Any) -> str:
    """What a model's card says of the rows that it takes."""
    if not isinstance(encoding, Encoding):
        return "Encoded rows of norm at most 1, in the order in which the parties encoded theirs."
    columns = ", ".join(f"`{column.name}`" for column in encoding.schema.columns)
    return f"A table with the columns {columns}, as `model.json` describes them (bounds, categories, missing values)."


def _scalar(label: Any) -> str | int | float | bool:
    value = label.item() if isinstance(label, np.generic) else label
    if not isinstance(value, str | int | float):
        raise DataError(f"a class label must be a string or a number to be stored, found {label!r}")
    return value
