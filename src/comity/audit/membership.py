"""Membership inference on what a run releases, as people know it: an illustration, not a bound.

A simulated run learns from some of many generated records. An attacker sees the released model or dataset and guesses
for each record whether it was among them: records that the model predicts better, or that lie closer to a released
row, rather were. The share of right guesses says what this one attack finds about typical records. It is no bound: the
claims of an audit are about the worst record and the best attack.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from comity.audit.capture import without_warnings
from comity.audit.neighbours import declared_sizes
from comity.audit.row import Membership
from comity.data import Bounded, Categorical, Classes, Date, Numeric, Ordinal, Schema
from comity.entropy import Stream
from comity.errors import ComityError
from comity.study.records.party_data import encode_party_data
from comity.study.simulation.simulate import RunOptions, run_simulation
from comity.study.study import Study

Floats = NDArray[np.float64]

_RUNS = 5
_FEWEST, _MOST = 20, 200
_OUTSIDE = 400
_NEIGHBOURS = 2_000


def illustrate_membership(study: Study, *, seconds: float) -> tuple[Membership, ...]:
    """The attacks on a few simulated runs of the study, as many as begin in so many seconds. Empty where a run presents
    neither a model nor a dataset, or can't be simulated on generated records."""
    started, inside, outside, kinds = time.perf_counter(), list[Floats](), list[Floats](), set[tuple[str, str]]()
    others: list[Membership] = []
    for number in range(_RUNS):
        own, rest = _records(study, number)
        try:
            with without_warnings():
                presented = _simulate(study, own, number)
            attacked = _score(study.schema, presented, pd.concat([*own.values()], ignore_index=True), rest)
        except ComityError:
            return ()
        if attacked is None:
            return ()
        kind, attack, scores, scores_outside = attacked
        kinds.add((kind, attack))
        inside.append(scores)
        outside.append(scores_outside)
        if number == 0 and kind == "dataset":
            others += _with_anonymeter(presented.frame, pd.concat([*own.values()], ignore_index=True), rest)
        if time.perf_counter() - started > seconds:
            break
    ((kind, attack),) = kinds
    shares = np.array([_right(*pair) for pair in zip(inside, outside, strict=True)])
    found = np.mean([(one > np.quantile(two, 0.9)).mean() for one, two in zip(inside, outside, strict=True)])
    count = len(inside[0]) + len(outside[0])
    # Of one run: the deviation that guesses without any information have.
    chance = np.sqrt((count + 1) / 12 / len(inside[0]) / len(outside[0]))
    error = float(chance / np.sqrt(len(shares)))
    own_attack = Membership(kind, attack, float(shares.mean()), error, (float(found), 0.1), len(shares), count)
    return (own_attack, *others)


def _records(study: Study, number: int) -> tuple[dict[str, pd.DataFrame], pd.DataFrame]:
    """Records of every party, and as many again that no party has, all drawn alike from the schema."""
    consortium, sizes = study.agreement.consortium, declared_sizes(study)
    rows = {name: max(_FEWEST, min(sizes.get(name, _FEWEST), _MOST)) for name in consortium.parties}
    if study.setting.columns:
        shared = uniform_rows(study.schema, max(rows.values()), f"run {number}")
        return dict.fromkeys(consortium.parties, shared), uniform_rows(study.schema, _OUTSIDE, f"outside {number}")
    own = {name: uniform_rows(study.schema, count, f"run {number}", name) for name, count in rows.items()}
    return own, uniform_rows(study.schema, _OUTSIDE, f"outside {number}")


def uniform_rows(schema: Schema, count: int, *purpose: str) -> pd.DataFrame:
    """Records anywhere in the schema, with a target that nothing predicts: a model that is better on some of them has
    learned them by heart."""
    stream = Stream.public("audit membership", *purpose)
    columns: dict[str, Any] = {}
    for column in (*schema.columns, *(() if schema.target is None else (schema.target,))):
        match column:
            case Numeric() | Bounded():
                drawn = column.low + (column.high - column.low) * np.asarray(stream.uniform((count,)))
                columns[column.name] = np.rint(drawn).astype(int) if getattr(column, "integer", False) else drawn
            case Date():
                days = (column.high - column.low).days + 1
                picked = pd.to_timedelta(np.asarray(stream.integers(days, (count,))), unit="D")
                columns[column.name] = (pd.Timestamp(column.low) + picked).strftime("%Y-%m-%d")
            case Categorical() | Ordinal() | Classes():
                columns[column.name] = [column.values[one] for one in stream.integers(len(column.values), (count,))]
    if schema.identifier is not None:
        columns[schema.identifier] = [f"{'-'.join(purpose)}-{place:06d}" for place in range(count)]
    return pd.DataFrame(columns)


def _simulate(study: Study, frames: Mapping[str, pd.DataFrame], seed: int) -> Any:
    agreement = study.agreement
    data = encode_party_data(agreement, frames, None, None)
    try:
        # Stacks of parties give the same without messages; not every method has them.
        return run_simulation(agreement, data, seed=seed, options=RunOptions(hosts=False, baselines=False)).presented
    except ComityError:
        return run_simulation(agreement, data, seed=seed, options=RunOptions(baselines=False)).presented


def _score(
    schema: Schema, presented: Any, own: pd.DataFrame, rest: pd.DataFrame
) -> tuple[str, str, Floats, Floats] | None:
    """How much each record looks like one that was learned from."""
    own = own.drop_duplicates()
    if hasattr(presented, "frame"):
        seen = presented.frame.head(_NEIGHBOURS)
        return (
            "dataset",
            "the distance to the nearest row",
            _closeness(schema, seen, own),
            _closeness(schema, seen, rest),
        )
    target = schema.target
    if target is None or not hasattr(presented, "predict"):
        return None
    return "model", "the error of the model", -_errors(presented, own, target), -_errors(presented, rest, target)


def _errors(model: Any, rows: pd.DataFrame, target: Classes | Bounded) -> Floats:
    features = rows.drop(columns=target.name)
    if isinstance(target, Bounded) or not hasattr(model, "predict_proba"):
        predicted = np.asarray(model.predict(features))
        if isinstance(target, Classes):
            return np.asarray(predicted != rows[target.name].to_numpy(), np.float64)
        return np.asarray(np.abs(predicted.astype(float) - rows[target.name].to_numpy(float)), np.float64)
    chances = np.asarray(model.predict_proba(features), np.float64)
    places = [list(target.values).index(value) for value in rows[target.name]]
    return np.asarray(-np.log(np.maximum(chances[np.arange(len(rows)), places], 1e-12)), np.float64)


def _closeness(schema: Schema, seen: pd.DataFrame, rows: pd.DataFrame) -> Floats:
    """Minus the distance to the nearest released row: numbers over their range, and categories that differ as 1."""
    total = np.zeros((len(rows), len(seen)))
    for column in (*schema.columns, *(() if schema.target is None else (schema.target,))):
        if column.name not in seen:
            continue
        one, other = rows[column.name].to_numpy(), seen[column.name].to_numpy()
        if isinstance(column, Numeric | Bounded):
            apart = np.abs(one.astype(float)[:, None] - other.astype(float)[None]) / (column.high - column.low)
        else:
            apart = one.astype(str)[:, None] != other.astype(str)[None]
        total += apart
    return np.asarray(-total.min(axis=1), np.float64)


def _right(inside: Floats, outside: Floats) -> float:
    """The probability that a record from inside has the larger score; ties count half."""
    placed = np.sort(outside)
    below, up_to = np.searchsorted(placed, inside, "left"), np.searchsorted(placed, inside, "right")
    return float((below + up_to).mean() / 2 / len(outside))


def _with_anonymeter(released: pd.DataFrame, own: pd.DataFrame, rest: pd.DataFrame) -> list[Membership]:
    """Anonymeter's attack that singles records out, where the package is installed: its success on records that were
    learned from, beside that on others."""
    try:
        from anonymeter.evaluators import SinglingOutEvaluator  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return []
    evaluator = SinglingOutEvaluator(ori=own, syn=released, control=rest, n_attacks=min(200, len(own)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator.evaluate(mode="univariate")
            results = evaluator.results()
    except Exception:
        # The attack gives up where it finds too few guesses.
        return []
    rates = float(results.attack_rate.value), float(results.control_rate.value)
    error = float(np.hypot(results.attack_rate.error, results.control_rate.error)) / 4
    right = 0.5 + (rates[0] - rates[1]) / 2
    count = len(own) + len(rest)
    return [Membership("dataset", "Anonymeter's singling out", right, error, rates, 1, count, pairs=False)]
