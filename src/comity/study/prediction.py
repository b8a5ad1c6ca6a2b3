"""The `[prediction]` table of a study: new records are scored by weights that a vertical study released.

A joint prediction between organisations is a separate study: it is packed, signed, approved, limited and resumed as any
other. Its hash covers the weights, the study and the run that released them, how many records may be
scored and who receives the scores. It trains nothing and draws nothing; its scores are exact (`JointPrediction`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from comity.errors import StudyError
from comity.files import write_atomically, write_file
from comity.study.public_files import confine
from comity.study.tables import PredictionTable

if TYPE_CHECKING:
    from comity.data import Schema
    from comity.federation.protocol import Protocol
    from comity.methods.vertical.prediction import JointPrediction
    from comity.study.study import Study


Floats = NDArray[np.float64]

WEIGHTS = "weights.json"
_FORMAT = "comity-weights-1"
_LEFT_OUT = ("simulation", "evaluation", "prediction")
_HEADER = re.compile(r"^\s*\[+\s*([A-Za-z0-9_-]+)")


def joint_prediction_of(
    method: Protocol, schema: Schema, coef: Floats, *, most: int, receiver: str | None = None
) -> JointPrediction:
    """The joint prediction that goes with a vertical method; a StudyError where the method is another."""
    from comity.methods.vertical.method import ColumnRegression
    from comity.methods.vertical.prediction import JointPrediction

    if not isinstance(method, ColumnRegression):
        raise StudyError(
            f"a joint prediction is for parties with different columns, found a study of {method.name}; where parties "
            "have whole records each applies the model itself: comity predict MODEL DATA",
            key="study.protocol",
        )
    return JointPrediction(
        schema=schema,
        columns=method.design.columns,
        coef=coef,
        intercept=method.design.intercept,
        bins=method.design.bins,
        alignment="none" if schema.identifier is None else method.alignment,
        max_rows=most,
        receiver=receiver,
    )


def build_prediction(
    table: PredictionTable, method: Protocol, schema: Schema, parties: Collection[str] | int, folder: Path, where: str
) -> Protocol:
    """The protocol of a study that applies a model instead of training one."""
    if table.receiver is not None and (isinstance(parties, int) or table.receiver not in parties):
        raise StudyError(
            f"prediction.receiver = {table.receiver!r} is no party of the study; name one of [parties], or leave it "
            "out: then the coordinator alone has the scores",
            key="prediction.receiver",
        )
    path = confine(folder, table.weights, "prediction.weights", where)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"prediction.weights: {path} can't be read ({error})", key="prediction.weights") from error
    coef = read_weights(text, where)
    return joint_prediction_of(method, schema, coef, most=table.records, receiver=table.receiver)


def weights_text(coef: Floats) -> str:
    """The text of a weights file, in decimals that are read back as the same numbers."""
    return json.dumps({"format": _FORMAT, "weights": [float(one) for one in coef.reshape(-1)]}) + "\n"


def read_weights(text: str, where: str) -> Floats:
    """Read what `weights_text` wrote, or raise a StudyError."""
    try:
        page = json.loads(text)
        if set(page) != {"format", "weights"} or page["format"] != _FORMAT:
            raise ValueError("another format")
        if not all(type(one) in (int, float) for one in page["weights"]):
            raise ValueError("numbers were expected")
        return np.array(page["weights"], np.float64)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise StudyError(
            f"{where}: prediction.weights can't be read ({error}); write it with: comity predict RUN --jointly --keys",
            key="prediction.weights",
        ) from error


def write_prediction(study: Study, *, run: str, coef: Floats, records: int, receiver: str | None, folder: Path) -> Path:
    """Write the study that applies the model which this run of `study` released, with all that it names, into `folder`.
    The study's file is returned."""
    lines, inside = [], False
    for line in study.text.splitlines():
        header = _HEADER.match(line)
        inside = header[1] in _LEFT_OUT if header else inside
        if not inside:
            lines.append(line)
    table = ["[prediction]", f'of = "{study.hash}"', f"run = {json.dumps(run)}", f'weights = "{WEIGHTS}"']
    table += [f"records = {records}", *([] if receiver is None else [f"receiver = {json.dumps(receiver)}"])]
    for name in study.files.values():
        write_file(folder / name, (study.folder / name).read_bytes())
    write_atomically(folder / WEIGHTS, weights_text(coef))
    path = folder / "study.toml"
    write_atomically(path, "\n".join([*lines, "", *table]).strip() + "\n")
    return path
