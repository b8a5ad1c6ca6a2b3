"""A local model by its dotted name and parameters, as a study's simulation or a site file writes it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from comity.data.nearest import did_you_mean
from comity.errors import StudyError
from comity.learn.voters.local_model import Estimator, from_estimator

# Whoever opens a study file runs what it names, and others wrote it: from there only these libraries are imported.
LIBRARIES = ("sklearn", "xgboost", "lightgbm", "catboost")
# Parameters of scikit-learn, xgboost, lightgbm and catboost that name caches, models or folders.
_FILES = ("memory", "xgb_model", "init_model", "snapshot_file", "train_dir", "cache", "callbacks")


def named(
    name: str | Sequence[str],
    *,
    soft: bool = False,
    libraries: Sequence[str] | None = None,
    where: str = "model",
    **parameters: Any,
) -> Estimator:
    """`named("sklearn.ensemble.HistGradientBoostingClassifier", max_depth=3)`.

    Several names make a pipeline; its parameters are then written as scikit-learn does, `svc__C`. Naming a class
    imports its module, which runs code: `libraries` limits the packages to import from, None does not limit them.
    """
    if libraries is not None:
        _require_plain(parameters, where)
    if isinstance(name, str):
        return from_estimator(_made(_class(name, libraries, where), parameters, name, where), soft=soft)
    from sklearn.pipeline import make_pipeline

    if not name:
        raise StudyError(f"{where}: a pipeline needs at least one dotted name, found none")
    pipeline = make_pipeline(*(_made(_class(one, libraries, where), {}, one, where) for one in name))
    try:
        pipeline.set_params(**parameters)
    except ValueError as error:
        known = [key for key in pipeline.get_params() if "__" in key]
        wrong = next((key for key in parameters if key not in known), "")
        raise StudyError(f"{where}: {wrong!r} is no parameter of the pipeline{did_you_mean(wrong, known)}") from error
    return from_estimator(pipeline, soft=soft)


def _require_plain(parameters: dict[str, Any], where: str) -> None:
    """Refuse what makes a library read or write files: a cache that it loads again may hold anybody's code."""
    for key in parameters:
        leaf = key.rpartition("__")[2]
        if leaf in _FILES or leaf.endswith(("_dir", "_file", "_path")):
            raise StudyError(
                f"{where}: {key!r} names a file or a folder, which a study file may not give to a model, because what "
                "is loaded from there can run code. Give such models from Python"
            )


def _class(name: str, libraries: Sequence[str] | None, where: str) -> type:
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


def _made(kind: type, parameters: dict[str, Any], name: str, where: str) -> Any:
    try:
        return kind(**parameters)
    except TypeError as error:
        known = list(inspect.signature(kind).parameters)
        wrong = next((key for key in parameters if key not in known), None)
        if wrong is None:
            raise StudyError(f"{where}: {name} can't be made from these parameters ({error}); correct them") from error
        raise StudyError(f"{where}: {wrong!r} is no parameter of {name}{did_you_mean(wrong, known)}") from error
