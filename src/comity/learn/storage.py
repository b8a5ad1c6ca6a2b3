"""Released models on disk: `model.json` and, for weights, `weights.npz`. Opening one runs no code (no
pickle).

`model.json` is readable by itself: the kind of model, its classes, and the encoding as its options with the
text of the schema; a feature map's arrays lie beside the weights. A folder comes from somewhere else and is
checked before use; whatever is wrong with it is a `DataError`.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from comity.data.encoding import Encoding
from comity.data.schema import Schema
from comity.errors import DataError, SchemaError
from comity.learn.feature_map import FeatureMap
from comity.learn.models import ConstantClassifier, LinearClassifier
from comity.learn.newton import Floats
from comity.learn.regressor import LinearRegressor

_FORMAT: Final = "comity-model"
_MAPPED: Final = "linear after a feature map"
_REGRESSION: Final = "regression"
# Before the names of a feature map's arrays.
_MAP: Final = "map."
_VERSION: Final = 1
_MOST_BYTES: Final = 1 << 28
_OPTIONS: Final = {"scaling": str, "rows": str, "intercept": bool, "bins": bool}

Model = LinearClassifier | ConstantClassifier | LinearRegressor


def save_model(model: Model, folder: str | Path) -> None:
    """Write the model into `folder`, which is made if it is not there."""
    folder = Path(folder)
    page: dict[str, Any] = {
        "format": _FORMAT,
        "version": _VERSION,
        "classes": [] if isinstance(model, LinearRegressor) else [_scalar(label) for label in model.classes],
    }
    if isinstance(model, LinearRegressor):
        coef = model.coef_with_errors_
        page |= {"kind": _REGRESSION, "low": model.low, "high": model.high}
        page |= {"shape": list(coef.shape), "encoding": _encoding_page(model)}
    elif isinstance(model, ConstantClassifier):
        page |= {"kind": "constant", "shares": model.shares_.tolist()}
    else:
        # A reader that knows no maps must not take the weights for those of plain rows: it is another kind.
        kind = "linear" if model.feature_map is None else _MAPPED
        page |= {"kind": kind, "shape": list(model.coef_.shape), "encoding": _encoding_page(model)}
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(model, LinearRegressor):
        np.savez(folder / "weights.npz", coef=coef)
    elif isinstance(model, LinearClassifier):
        mapped = {} if model.feature_map is None else model.feature_map.arrays()
        arrays: dict[str, Any] = {"coef": model.coef_} | {_MAP + name: one for name, one in mapped.items()}
        np.savez(folder / "weights.npz", **arrays)
    text = json.dumps(page, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / "model.json").write_text(text + "\n", encoding="utf-8")


def load_model(folder: str | Path) -> Model:
    """The model that `save_model` wrote into `folder`."""
    path = Path(folder) / "model.json"
    page = _page(path)
    classes = _get(page, "classes", list, path)
    if any(not isinstance(label, str | int | float) for label in classes) or len(set(classes)) != len(classes):
        raise DataError(f"{path}: classes must be different strings or numbers, found {classes}; fetch the model again")
    kind = _get(page, "kind", str, path)
    if kind == "constant":
        shares = _get(page, "shares", list, path)
        if any(isinstance(share, bool) or not isinstance(share, int | float) for share in shares):
            raise DataError(f"{path}: shares must be numbers, found {shares}; fetch the model again")
        constant = ConstantClassifier(shares, classes)
        _checked(path, lambda: constant.shares_)
        return constant
    if kind not in ("linear", _MAPPED, _REGRESSION):
        raise DataError(
            f"{path}: kind must be 'linear', {_MAPPED!r}, {_REGRESSION!r} or 'constant', found {kind!r}; a newer "
            "comity may know it"
        )
    stored = Path(folder) / "weights.npz"
    coef, arrays = _weights(stored, _get(page, "shape", list, path))
    feature_map = _feature_map(arrays, stored) if kind == _MAPPED else None
    encoding = None if page.get("encoding") is None else _encoding(_get(page, "encoding", dict, path), path)
    linear: LinearClassifier | LinearRegressor
    if kind == _REGRESSION:
        low, high = (_get(page, key, float, path) for key in ("low", "high"))
        linear = LinearRegressor(coef[0], low, high, encoding, coef[1] if len(coef) == 2 else None)
    else:
        linear = LinearClassifier(coef, classes, encoding, feature_map)
    _checked(path, lambda: linear.coef_)
    if encoding is not None and encoding.width != linear.n_features_in_:
        raise DataError(
            f"{path}: the schema encodes {encoding.width} features and the weights are for {linear.n_features_in_}; "
            "the two files are not of one model, fetch it again"
        )
    return linear


def _scalar(label: Any) -> str | int | float | bool:
    value = label.item() if isinstance(label, np.generic) else label
    if not isinstance(value, str | int | float):
        raise DataError(f"a class label must be a string or a number to be stored, found {label!r}")
    return value


def _encoding_page(model: LinearClassifier | LinearRegressor) -> dict[str, Any] | None:
    encoding = model.encoding
    if encoding is None:
        return None
    if not isinstance(encoding, Encoding):
        raise DataError(f"only an encoding built from a schema can be stored, found {type(encoding).__name__}")
    return {"schema": encoding.schema.to_toml()} | {key: getattr(encoding, key) for key in _OPTIONS}


def _encoding(page: dict[str, Any], path: Path) -> Encoding:
    text = _get(page, "schema", str, path)
    options: dict[str, Any] = {key: _get(page, key, kind, path) for key, kind in _OPTIONS.items()}
    try:
        return Encoding(Schema.parse(text, f"{path}, schema"), **options)
    except SchemaError as error:
        raise DataError(f"{path}: the model's encoding can't be used ({error}); fetch the model again") from error


def _page(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise DataError(f"{path}: is larger than any model's page; give the folder of a released model")
        page = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: no model can be read here ({error}); give the folder of a released model") from error
    if not isinstance(page, dict) or page.get("format") != _FORMAT or page.get("version") != _VERSION:
        raise DataError(
            f"{path}: expected format {_FORMAT!r}, version {_VERSION}; it is of another program, or of a newer comity"
        )
    return page


def _feature_map(arrays: dict[str, NDArray[Any]], path: Path) -> FeatureMap:
    found = {name.removeprefix(_MAP): one for name, one in arrays.items() if name.startswith(_MAP)}
    try:
        return FeatureMap.from_arrays(found)
    except (DataError, ValueError, TypeError, IndexError) as error:
        raise DataError(f"{path}: the feature map can't be used ({error}); fetch the model again") from error


def _weights(path: Path, shape: list[Any]) -> tuple[Floats, dict[str, NDArray[Any]]]:
    """The weights, and the other arrays beside them."""
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


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a `.npz` file that comes from somewhere else: no code is run, and its size is limited."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > _MOST_BYTES:
            raise DataError(f"{path}: unpacks to {size} bytes, more than anything that is released; it is not opened")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (
        OSError,
        ValueError,
        KeyError,
        EOFError,
        NotImplementedError,
        zipfile.BadZipFile,
        zipfile.error,
    ) as error:
        raise DataError(f"{path}: its arrays can't be read ({error}); fetch the folder again") from error


def _get(page: dict[str, Any], key: str, kind: type, path: Path) -> Any:
    value = page.get(key)
    if not isinstance(value, kind):
        raise DataError(f"{path}: {key} must be a {kind.__name__}, found {value!r}; fetch the model again")
    return value


def _checked(path: Path, property_of_model: Any) -> None:
    try:
        property_of_model()
    except DataError as error:
        raise DataError(f"{path}: {error}; fetch the model again") from error
