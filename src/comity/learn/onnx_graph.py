"""A released linear model as an ONNX graph, from the raw columns of a record to its prediction.

Each column of the schema is an input of shape (n, 1): numbers as doubles with NaN where they are missing, categories as
text with "" where they are missing, days as the number of whole steps since the column's first day. The graph clips,
fills, scales and rescales as the schema and the encoding say. A value that the schema refuses gives NaN, because a
graph raises no errors. Without a schema there is one input: encoded rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

import numpy as np

from comity.data import Categorical, Column, Date, Encoding, Numeric, Ordinal
from comity.learn.classifiers import LinearClassifier
from comity.learn.regressor import LinearRegressor

_OPSET, _ML_OPSET, _IR = 17, 3, 8
_ROWS = "n"


class Graph:
    """Nodes and constants of a graph under construction; a value is the name of a tensor."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, kind: Any = np.float64) -> str:
        from onnx import TensorProto, helper, numpy_helper

        name = f"c{len(self.constants)}"
        if kind is str:
            texts: Any = [str(one).encode() for one in value]
            self.constants.append(helper.make_tensor(name, TensorProto.STRING, [len(texts)], texts))
        else:
            self.constants.append(numpy_helper.from_array(np.asarray(value, kind), name))
        return name

    def node(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        from onnx import helper

        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], domain=domain, **attributes))
        return name

    def add_input(self, name: str, kind: int, width: int) -> str:
        from onnx import helper

        self.inputs.append(helper.make_tensor_value_info(name, kind, [_ROWS, width]))
        return name

    def where_missing(self, values: str, instead: float) -> str:
        return self.node("Where", self.node("IsNaN", values), self.constant(instead), values)


def build_onnx(model: LinearClassifier | LinearRegressor, about: Mapping[str, str]) -> bytes:
    """The bytes of the file. A classifier has the outputs `label` and `probabilities`, a regression `predicted`."""
    import onnx
    from onnx import TensorProto, helper

    graph = Graph()
    coef = np.atleast_2d(model.coef_)
    intercept = np.atleast_1d(np.asarray(model.intercept_, np.float64))
    if isinstance(model.encoding, Encoding):
        rows = _encode(graph, model.encoding, constant=coef.shape[1] < model.encoding.width)
        # One public divisor of all rows goes into the coefficients: runtimes merge a division of rows in single
        # precision.
        coef = coef / model.encoding.divisor
    else:
        rows = graph.add_input("rows", TensorProto.DOUBLE, coef.shape[1])
    scores = graph.node("Add", graph.node("MatMul", rows, graph.constant(coef.T)), graph.constant(intercept))
    named: dict[str, tuple[str, int, list[Any]]]
    if isinstance(model, LinearRegressor):
        named = {"predicted": (scores, TensorProto.DOUBLE, [_ROWS, 1])}
    else:
        label, shares = _classify(graph, scores, model)
        texts = isinstance(model.classes_[0], str)
        named = {
            "label": (label, TensorProto.STRING if texts else TensorProto.INT64, [_ROWS]),
            "probabilities": (shares, TensorProto.DOUBLE, [_ROWS, len(model.classes_)]),
        }
    outputs = []
    for name, (value, kind, shape) in named.items():
        graph.nodes.append(helper.make_node("Identity", [value], [name]))
        outputs.append(helper.make_tensor_value_info(name, kind, shape))
    made = helper.make_model(
        helper.make_graph(graph.nodes, "comity", graph.inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)],
        ir_version=_IR,
        producer_name="comity",
    )
    helper.set_model_props(made, dict(about))
    onnx.checker.check_model(made)
    content: bytes = made.SerializeToString()
    return content


def _classify(graph: Graph, scores: str, model: LinearClassifier) -> tuple[str, str]:
    classes = list(model.classes_)
    if len(classes) == 2:
        shares = graph.node("Sigmoid", graph.node("Concat", graph.node("Neg", scores), scores, axis=1))
        positive = graph.node("Greater", scores, graph.constant(0.0))
        place = graph.node("Squeeze", graph.node("Cast", positive, to=7), graph.constant([1], np.int64))
    else:
        shares = graph.node("Softmax", scores, axis=1)
        place = graph.node("ArgMax", scores, axis=1, keepdims=0)
    if not isinstance(classes[0], str):
        return graph.node("Gather", graph.constant(classes, np.int64), place), shares
    # The last text is that of a record without a prediction.
    total = graph.node("ReduceSum", scores, graph.constant([1], np.int64), keepdims=0)
    unknown = graph.node("IsNaN", total)
    place = graph.node("Where", unknown, graph.constant(len(classes), np.int64), place)
    return graph.node("Gather", graph.constant([*classes, ""], str), place), shares


def _encode(graph: Graph, encoding: Encoding, *, constant: bool) -> str:
    """Encoded rows; without the last entry where it is a `constant` that the intercept stands for."""
    parts = [
        _encode_column(graph, encoding, column, one_hot=group.one_hot)
        for column, group in zip(encoding.schema.columns, encoding.bounds.groups)
    ]
    if encoding.intercept and not constant:
        first = graph.node("Mul", graph.node("Slice", parts[0], *_slice(graph)), graph.constant(0.0))
        parts.append(graph.node("Add", first, graph.constant(1.0)))
    rows = graph.node("Concat", *parts, axis=1)
    if encoding.rows in ("none", "scaled"):
        return rows
    squares = graph.node("ReduceSum", graph.node("Mul", rows, rows), graph.constant([1], np.int64), keepdims=1)
    length = graph.node("Sqrt", squares)
    if encoding.rows == "clipped":
        return graph.node("Div", rows, graph.node("Max", length, graph.constant(1.0)))
    empty = graph.node("Equal", length, graph.constant(0.0))
    return graph.node("Div", rows, graph.node("Where", empty, graph.constant(1.0), length))


def _slice(graph: Graph) -> tuple[str, str, str]:
    """The first column."""
    return graph.constant([0], np.int64), graph.constant([1], np.int64), graph.constant([1], np.int64)


def _encode_column(graph: Graph, encoding: Encoding, column: Column, *, one_hot: bool) -> str:
    from onnx import TensorProto

    if isinstance(column, Categorical):
        raw = graph.add_input(column.name, TensorProto.STRING, 1)
        missing = {"other": len(column.values), "cell": column.width - 1}.get(column.missing, -1)
        unknown = len(column.values) if column.other else -1
        return _one_hot(graph, _codes(graph, raw, column.values, missing, unknown), column.width)
    if isinstance(column, Ordinal):
        raw = graph.add_input(column.name, TensorProto.STRING, 1)
        filled = -1 if column.fill is None else column.values.index(column.fill)
        # Missing values are told from unknown ones by a code of their own.
        codes = _codes(graph, raw, column.values, -2 if column.missing == "cell" else filled, -1)
        values = graph.node("Cast", codes, to=TensorProto.DOUBLE)
        values = _replace(graph, values, -1.0, nan)
        return _scaled(graph, encoding, column, values, float(len(column.values) - 1), marker=-2.0)
    raw = graph.add_input(column.name, TensorProto.DOUBLE, 1)
    low, high = (0.0, float(column.steps)) if isinstance(column, Date) else (column.low, column.high)
    values = raw
    if column.missing == "fill":
        fill = column.fill
        if isinstance(column, Date):
            assert column.fill is not None
            fill = float(column.since_low(np.array([column.fill], "datetime64[D]"))[0])
        values = graph.where_missing(raw, float(fill))  # type: ignore[arg-type]
    values = graph.node("Min", graph.node("Max", values, graph.constant(low)), graph.constant(high))
    # Min and Max of some runtimes drop NaN.
    if column.missing != "fill":
        values = graph.node("Where", graph.node("IsNaN", raw), graph.constant(nan), values)
    if isinstance(column, Numeric) and one_hot:
        return _bins(graph, column, values)
    if isinstance(column, Numeric) and column.scale == "log":
        first, last = column.on_scale(np.array([column.low, column.high]))
        size = graph.node("Log", graph.node("Add", graph.node("Abs", values), graph.constant(1.0)))
        values = graph.node("Sub", graph.node("Mul", graph.node("Sign", values), size), graph.constant(first))
        return _scaled(graph, encoding, column, values, float(last - first), marker=nan)
    values = graph.node("Sub", values, graph.constant(low))
    return _scaled(graph, encoding, column, values, high - low, marker=nan)


def _scaled(graph: Graph, encoding: Encoding, column: Column, values: str, length: float, *, marker: float) -> str:
    """Values from 0 to `length` on the scale of the encoding. Where missing values are a cell, which `marker` stands
    for, they are 0 with a further entry of 1."""
    missing = ""
    if column.missing == "cell":
        missing = (
            graph.node("IsNaN", values) if np.isnan(marker) else graph.node("Equal", values, graph.constant(marker))
        )
    scaled = graph.node("Div", values, graph.constant(length))
    if encoding.scaling == "symmetric":
        scaled = graph.node("Sub", graph.node("Mul", scaled, graph.constant(2.0)), graph.constant(1.0))
    if not missing:
        return scaled
    scaled = graph.node("Where", missing, graph.constant(0.0), scaled)
    return graph.node("Concat", scaled, graph.node("Cast", missing, to=11), axis=1)


def _bins(graph: Graph, column: Numeric, values: str) -> str:
    """One-hot bins. A value's position is the number of cuts that it reaches; a missing one is after the last, or
    NaN."""
    cuts = np.asarray(column.cuts, np.float64)
    reached = graph.node("Not", graph.node("Less", values, graph.constant(cuts[None])))
    counted = graph.node("Cast", reached, to=7)
    place = graph.node("ReduceSum", counted, graph.constant([1], np.int64), keepdims=1)
    missing = len(cuts) + 1 if column.missing == "cell" else -1
    place = graph.node("Where", graph.node("IsNaN", values), graph.constant(missing, np.int64), place)
    return _one_hot(graph, place, len(cuts) + 1 + (column.missing == "cell"))


def _codes(graph: Graph, raw: str, values: Sequence[str], missing: int, unknown: int) -> str:
    return graph.node(
        "LabelEncoder",
        raw,
        domain="ai.onnx.ml",
        keys_strings=[*values, ""],
        values_int64s=[*range(len(values)), missing],
        default_int64=unknown,
    )


def _one_hot(graph: Graph, codes: str, width: int) -> str:
    """(n, width) of ones and zeros; NaN for a code of -1."""
    hot = graph.node("Equal", codes, graph.constant(np.arange(width)[None], np.int64))
    refused = graph.node("Less", codes, graph.constant(0, np.int64))
    return graph.node("Where", refused, graph.constant(nan), graph.node("Cast", hot, to=11))


def _replace(graph: Graph, values: str, found: float, instead: float) -> str:
    return graph.node("Where", graph.node("Equal", values, graph.constant(found)), graph.constant(instead), values)
