"""Released models on disk: `model.json` and, for weights, `weights.npz`. Opening one runs no code (no
pickle).

`model.json` is readable by itself: the kind of model, its classes, and the encoding as its options with the
text of the schema. A folder comes from somewhere else and is checked before use; whatever is wrong with it
is a `DataError`.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from comity.data.encoding import Encoding
from comity.data.schema import Schema
from comity.errors import DataError, SchemaError
from comity.learn.models import ConstantClassifier, LinearClassifier
from comity.learn.newton import Floats

_FORMAT: Final = "comity-model"
_VERSION: Final = 1
_MOST_BYTES: Final = 1 << 28
_OPTIONS: Final = {"scaling": str, "rows": str, "intercept": bool, "bins": bool}

Model = LinearClassifier | ConstantClassifier


def save_model(model: Model, folder: str | Path) -> None:
    """Write the model into `folder`, which is made if it is not there."""
    folder = Path(folder)
    page: dict[str, Any] = {
        "format": _FORMAT,
        "version": _VERSION,
        "classes": [_scalar(label) for label in model.classes],
    }
    if isinstance(model, ConstantClassifier):
        page |= {"kind": "constant", "shares": model.shares_.tolist()}
    else:
        page |= {"kind": "linear", "shape": list(model.coef_.shape), "encoding": _encoding_page(model)}
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(model, LinearClassifier):
        np.savez(folder / "weights.npz", coef=model.coef_)
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
    if kind != "linear":
        raise DataError(f"{path}: kind must be 'linear' or 'constant', found {kind!r}; a newer comity may know it")
    coef = _weights(Path(folder) / "weights.npz", _get(page, "shape", list, path))
    encoding = None if page.get("encoding") is None else _encoding(_get(page, "encoding", dict, path), path)
    if encoding is not None and encoding.width != coef.shape[1]:
        raise DataError(
            f"{path}: the schema encodes {encoding.width} features and the weights have {coef.shape[1]}; "
            "the two files are not of one model, fetch it again"
        )
    linear = LinearClassifier(coef, classes, encoding)
    _checked(path, lambda: linear.coef_)
    return linear


def _scalar(label: Any) -> str | int | float | bool:
    value = label.item() if isinstance(label, np.generic) else label
    if not isinstance(value, str | int | float):
        raise DataError(f"a class label must be a string or a number to be stored, found {label!r}")
    return value


def _encoding_page(model: LinearClassifier) -> dict[str, Any] | None:
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


def _weights(path: Path, shape: list[Any]) -> Floats:
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > _MOST_BYTES:
            raise DataError(f"{path}: unpacks to {size} bytes, more than any released model; it is not opened")
        with np.load(path, allow_pickle=False) as arrays:
            coef = arrays["coef"]
    except (
        OSError,
        ValueError,
        KeyError,
        EOFError,
        NotImplementedError,
        zipfile.BadZipFile,
        zipfile.error,
    ) as error:
        raise DataError(f"{path}: the weights can't be read ({error}); fetch the model again") from error
    if coef.dtype != np.float64 or list(coef.shape) != shape or coef.ndim != 2 or not np.isfinite(coef).all():
        raise DataError(
            f"{path}: expected finite float64 weights of shape {shape}, found {coef.dtype} of "
            f"{list(coef.shape)}; fetch the model again"
        )
    return np.asarray(coef, np.float64)


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
