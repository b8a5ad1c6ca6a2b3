"""A party's own classifier, and its votes on the public auxiliary records.

A local model is a scikit-learn estimator or pipeline, a callable, a table of predictions, or the built-in linear
classifier (`linear_votes`). Parties of one study may have different ones, and nobody else sees a model. Only its votes
leave, protected as the protocol declares: one row of class shares for each auxiliary record.

The sensitivity of votes rests on two facts that hold for any model, however wrong. Every row lies in the simplex:
replacing a party moves a row by at most √2 in L2. And every party votes: a party without records, or whose model fails,
votes 1/C, because an error or an abstention that depends on the data would be a release.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comity.data import open_source
from comity.data.schemas.reading import MISSING, kind_of_value, read_codes, read_numbers
from comity.errors import DataError, StudyError, did_you_mean
from comity.learn.fits import fit_logistic, fit_softmax, hard_votes, one_hot
from comity.learn.newton import Floats

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("comity.site")

# Rounded decimals sum to one within this; numbers further off are no probabilities.
SLACK = 1e-6
# Name of the column of labels in a table with other columns.
LABEL = "label"
# Votes need no exact minimiser: no noise depends on it.
_TOLERANCE = 1e-6
# A study file that others wrote may name models of these libraries only: naming a class imports its module.
LIBRARIES = ("sklearn", "xgboost", "lightgbm", "catboost")
# Parameters of scikit-learn, xgboost, lightgbm and catboost that name caches, models or folders.
_FILES = ("memory", "xgb_model", "init_model", "snapshot_file", "train_dir", "cache", "callbacks")

# (features, labels, auxiliary, number of classes) to votes: rows of the simplex, (N, C).
LocalModel = Callable[[Floats, NDArray[Any], Floats, int], Floats]


@dataclass(frozen=True, eq=False)
class Ballot:
    """The public input of local models: auxiliary rows (N, d), and the labels of the classes."""

    auxiliary: Floats
    classes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Estimator:
    """A scikit-learn classifier, fitted on the party's records at each vote. `soft` votes are its probabilities."""

    estimator: Any
    soft: bool = False

    def __call__(self, features: Floats, labels: NDArray[Any], auxiliary: Floats, classes: int) -> Floats:
        from sklearn.base import clone

        if not len(labels):
            return np.full((len(auxiliary), classes), 1.0 / classes)
        own, targets = np.unique(np.asarray(labels).astype(np.int64), return_inverse=True)
        if len(own) == 1:
            # Many classifiers refuse a single class.
            return np.tile(one_hot(own, classes), (len(auxiliary), 1))
        # Some libraries require labels 0, 1, 2, …: `targets` renumbers the party's own classes.
        fitted = clone(self.estimator).fit(features, targets)
        if not self.soft:
            return one_hot(own[np.asarray(fitted.predict(auxiliary)).astype(np.int64)], classes)
        votes = np.zeros((len(auxiliary), classes))
        votes[:, own] = fitted.predict_proba(auxiliary)
        return votes


@dataclass(frozen=True, eq=False)
class Function:
    """Any callable of (features, labels, auxiliary, classes): votes (N, C), or N class indices."""

    function: Callable[..., Any]

    def __call__(self, features: Floats, labels: NDArray[Any], auxiliary: Floats, classes: int) -> Floats:
        votes = np.asarray(self.function(features, labels, auxiliary, classes))
        return one_hot(votes, classes) if votes.ndim == 1 else votes.astype(np.float64)


def from_estimator(estimator: Any, *, soft: bool = False) -> Estimator:
    """A local model from an unfitted scikit-learn classifier or pipeline, which is cloned and never changed."""
    from sklearn.base import clone

    name = type(estimator).__name__
    if isinstance(estimator, type) or not all(hasattr(estimator, part) for part in ("fit", "predict", "get_params")):
        raise StudyError(
            f"a local model must be a scikit-learn classifier with fit and predict, found "
            f"{f'the class {estimator.__name__}' if isinstance(estimator, type) else name}; give an estimator object"
        )
    if not _is_classifier(estimator):
        raise StudyError(f"a local model votes for classes, found {name}, which is no classifier; give a classifier")
    if soft and not hasattr(estimator, "predict_proba"):
        raise StudyError(f"soft votes need predict_proba, which {name} does not have; leave soft out, or calibrate it")
    return Estimator(clone(estimator), soft)


def _is_classifier(estimator: Any) -> bool:
    from sklearn.base import is_classifier

    try:
        return bool(is_classifier(estimator))
    except AttributeError:
        # An estimator that does not inherit from scikit-learn's may have no tags.
        return True


def from_callable(function: Callable[..., Any]) -> Function:
    """A local model from a callable of (features, labels, auxiliary, classes)."""
    if isinstance(function, type) or not callable(function):
        raise StudyError(f"a local model must be a callable of four arguments, found {function!r}; give a function")
    return Function(function)


def as_local_model(value: Any) -> LocalModel:
    """A local model from a Python object: a local model, an estimator, or a callable."""
    if isinstance(value, Estimator | Function | Predictions):
        return value
    if hasattr(value, "fit"):
        return from_estimator(value)
    return from_callable(value)


def local_votes(
    model: LocalModel,
    features: Floats,
    labels: NDArray[Any],
    auxiliary: Floats,
    classes: int,
    *,
    filled: NDArray[np.bool_] | None = None,
) -> Floats:
    """Votes (..., N, C) of one party, or of a stack of parties that each fit the model on their own records.

    It raises for no record and no model: the votes of a failed model, and every row outside the simplex, become 1/C.
    Only the owner's log says so.
    """
    if features.ndim > 2:
        stacked = np.ones(features.shape[:-1], bool) if filled is None else filled
        return np.stack(
            [
                local_votes(model, rows, own, auxiliary, classes, filled=present)
                for rows, own, present in zip(features, labels, stacked)
            ]
        )
    if filled is not None:
        features, labels = features[filled], labels[filled]
    even = np.full((len(auxiliary), classes), 1.0 / classes)
    try:
        # Copies, since a model may work in place.
        votes = np.asarray(model(features.copy(), labels.copy(), auxiliary.copy(), classes), np.float64)
    except Exception:
        log.exception("the local model %r failed: it votes evenly", model)
        return even
    if votes.shape != even.shape:
        log.error("the local model %r gave votes of shape %s, not %s: it votes evenly", model, votes.shape, even.shape)
        return even
    with np.errstate(invalid="ignore", over="ignore"):
        totals = votes.sum(axis=1, keepdims=True)
        # Written so that NaN fails.
        inside = (votes >= 0).all(axis=1, keepdims=True) & (np.abs(totals - 1) <= SLACK)
    if not inside.all():
        log.error("the local model %r gave %d rows outside the simplex: evened", model, int((~inside).sum()))
    return np.where(inside, votes / np.where(inside, totals, 1.0), even)


def harden(votes: Floats) -> Floats:
    """Give each row's whole vote to its likeliest class, the first of equal ones; a row of 1/C stays. Shares that
    differ only by rounding are equal.

    This is for protocols that count votes in units of 1/C: probabilities rounded to that grid would leave the simplex.
    """
    classes, best = votes.shape[-1], votes.max(axis=-1, keepdims=True) - SLACK
    undecided = votes.min(axis=-1, keepdims=True) >= best
    return np.where(undecided, 1.0 / classes, one_hot((votes >= best).argmax(axis=-1), classes))


@dataclass(frozen=True, eq=False)
class Predictions:
    """Votes (N, C) from a table of any program. The party's records are not used.

    The table is read once: the votes are exactly those that were checked.
    """

    votes: Floats = field(repr=False)
    where: str

    def __call__(self, features: Floats, labels: NDArray[Any], auxiliary: Floats, classes: int) -> Floats:
        if self.votes.shape != (len(auxiliary), classes):
            raise DataError(
                f"{self.where}: predictions of shape {self.votes.shape} do not fit {len(auxiliary)} auxiliary records "
                f"and {classes} classes; predict the study's auxiliary records"
            )
        return self.votes


def from_predictions(
    source: str | Path | pd.DataFrame | Mapping[str, Any],
    *,
    classes: Sequence[Any],
    rows: int,
    where: str = "predictions",
    base: Path | None = None,
) -> Predictions:
    """Votes from any source of records: a row for each of the `rows` auxiliary records, in their order, with one column
    of labels or one column of probabilities per class.

    Probabilities must not be negative and must sum to one within 1e-6; they are then divided by their sum. Any fault is
    a `DataError` at the owner's terminal, before anything is spent.
    """
    frame = open_source(source, where=where, base=base).read()
    name = where if not isinstance(source, str | Path) else f"{where}: {source}"
    if len(frame) != rows:
        raise DataError(
            f"{name}: expected a prediction for each of the {rows} auxiliary records, in their order, found "
            f"{len(frame)}; predict all of them and nothing else"
        )
    known = tuple(str(label) for label in classes)
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    columns = list(frame.columns)
    if len(set(columns)) != len(columns):
        raise DataError(f"{name}: a column name occurs twice among {', '.join(columns)}; keep one of each")
    if set(columns) == set(known):
        return Predictions(_check_probabilities(frame[list(known)], name), name)
    if LABEL in columns or len(columns) == 1:
        return Predictions(_votes_for_labels(frame[LABEL if LABEL in columns else columns[0]], known, name), name)
    missing, surplus = [c for c in known if c not in columns], [c for c in columns if c not in known]
    wrong = f"no column for {missing[0]!r}" if missing else f"also a column {surplus[0]!r}"
    raise DataError(
        f"{name}: expected one column {LABEL!r}, or exactly one column of probabilities per class "
        f"({', '.join(known[:12])}{', ...' if len(known) > 12 else ''}), found {wrong}; rename or remove columns"
    )


def _votes_for_labels(column: pd.Series, known: tuple[str, ...], where: str) -> Floats:
    read = read_codes(column, known)
    bad = read.codes < 0
    if bad.any():
        row = int(np.argmax(bad))
        if read.codes[row] == MISSING:
            raise DataError(f"{where}: row {row + 1}: the label is missing; every auxiliary record needs a prediction")
        raise DataError(
            f"{where}: row {row + 1}, column {LABEL!r}: found {kind_of_value(column, bad)} that is no class of the "
            f"study; correct the label to one of {', '.join(known[:12])}{', ...' if len(known) > 12 else ''}"
        )
    return one_hot(read.codes, len(known))


def _check_probabilities(frame: pd.DataFrame, where: str) -> Floats:
    values = np.empty(frame.shape)
    for place, name in enumerate(frame.columns):
        read = read_numbers(frame[name])
        # Written so that NaN fails.
        bad = ~((read.values >= 0) & (read.values <= 1 + SLACK))
        if bad.any():
            row = int(np.argmax(bad))
            found = "nothing" if read.missing[row] else kind_of_value(frame[name], bad)
            raise DataError(
                f"{where}: row {row + 1}, column {name!r}: expected a probability between 0 and 1, found {found} "
                "that is none; write probabilities, not scores"
            )
        values[:, place] = read.values
    totals = values.sum(axis=1)
    off = ~(np.abs(totals - 1) <= SLACK)
    if off.any():
        row = int(np.argmax(off))
        raise DataError(
            f"{where}: row {row + 1}: the probabilities of the {values.shape[1]} classes must sum to 1, and do "
            "not; normalise the rows, and keep seven decimals or more"
        )
    return np.asarray(values / totals[:, None], np.float64)


def from_name(
    name: str | Sequence[str],
    *,
    soft: bool = False,
    libraries: Sequence[str] | None = None,
    where: str = "model",
    **parameters: Any,
) -> Estimator:
    """A local model by its dotted name: `from_name("sklearn.ensemble.HistGradientBoostingClassifier", max_depth=3)`.

    Several names make a pipeline; its parameters are then written as scikit-learn does, `svc__C`. Naming a class
    imports its module, which runs code: `libraries` limits the packages to import from, None does not limit them.
    """
    if libraries is not None:
        _require_plain(parameters, where)
    if isinstance(name, str):
        return from_estimator(_construct(_import_class(name, libraries, where), parameters, name, where), soft=soft)
    from sklearn.pipeline import make_pipeline

    if not name:
        raise StudyError(f"{where}: a pipeline needs at least one dotted name, found none")
    pipeline = make_pipeline(*(_construct(_import_class(one, libraries, where), {}, one, where) for one in name))
    try:
        pipeline.set_params(**parameters)
    except ValueError as error:
        known = [key for key in pipeline.get_params() if "__" in key]
        wrong = next((key for key in parameters if key not in known), "")
        raise StudyError(f"{where}: {wrong!r} is no parameter of the pipeline{did_you_mean(wrong, known)}") from error
    return from_estimator(pipeline, soft=soft)


def _require_plain(parameters: dict[str, Any], where: str) -> None:
    """Refuse parameters by which a library reads or writes files: a cache may hold anybody's code."""
    for key in parameters:
        leaf = key.rpartition("__")[2]
        if leaf in _FILES or leaf.endswith(("_dir", "_file", "_path")):
            raise StudyError(
                f"{where}: {key!r} names a file or a folder, which a study file may not give to a model, because what "
                "is loaded from there can run code. Give such models from Python"
            )


def _import_class(name: str, libraries: Sequence[str] | None, where: str) -> type:
    module, _, leaf = name.rpartition(".")
    if not module or not all(part.isidentifier() for part in name.split(".")):
        raise StudyError(
            f"{where}: expected a dotted name as in sklearn.linear_model.LogisticRegression, found {name!r}"
        )
    package = module.partition(".")[0]
    if libraries is not None and package not in libraries:
        raise StudyError(
            f"{where}: {name} is not of {', '.join(libraries)}; a study file names models of these only, because "
            "importing runs code. Give other models from Python"
        )
    try:
        home = import_module(module)
    except ImportError as error:
        raise StudyError(
            f"{where}: {module} can't be imported ({error}); check the name, or install the package"
        ) from error
    found = getattr(home, leaf, None)
    if found is None:
        offered = [one for one in dir(home) if isinstance(getattr(home, one, None), type)]
        raise StudyError(f"{where}: {module} has no {leaf!r}{did_you_mean(leaf, offered)}")
    if not isinstance(found, type) or not all(hasattr(found, part) for part in ("fit", "get_params", "set_params")):
        raise StudyError(f"{where}: {name} is no scikit-learn estimator; name a class with fit and predict")
    return found


def _construct(kind: type, parameters: dict[str, Any], name: str, where: str) -> Any:
    try:
        return kind(**parameters)
    except TypeError as error:
        known = list(inspect.signature(kind).parameters)
        wrong = next((key for key in parameters if key not in known), None)
        if wrong is None:
            raise StudyError(f"{where}: {name} can't be made from these parameters ({error}); correct them") from error
        raise StudyError(f"{where}: {wrong!r} is no parameter of {name}{did_you_mean(wrong, known)}") from error


def linear_weights(
    features: Floats, labels: NDArray[np.int64], filled: NDArray[np.bool_], classes: int, l2: float
) -> tuple[Floats, NDArray[np.bool_]]:
    """The built-in classifier: weights (..., 1 or C, d), and whether each party has records and a converged fit."""
    if classes == 2:
        fit = fit_logistic(features, labels.astype(np.float64), l2, mask=filled, tol=_TOLERANCE)
        weights = fit.weights[..., None, :]
    else:
        fit = fit_softmax(features, np.where(filled, labels, 0), l2, classes=classes, mask=filled, tol=_TOLERANCE)
        weights = fit.weights
    return weights, np.asarray(filled.any(axis=-1) & fit.converged, np.bool_)


def linear_votes(
    features: Floats,
    labels: NDArray[np.int64],
    filled: NDArray[np.bool_],
    auxiliary: Floats,
    classes: int,
    l2: float,
) -> Floats:
    """Whole votes (..., N, C) of the built-in classifier. A party without records, or whose fit failed, votes 1/C:
    absence would be a release."""
    weights, usable = linear_weights(features, labels, filled, classes, l2)
    several = classes > 2
    chosen = hard_votes(weights if several else weights[..., 0, :], auxiliary, multiclass=several)
    return np.where(usable[..., None, None], one_hot(chosen, classes), 1.0 / classes)
