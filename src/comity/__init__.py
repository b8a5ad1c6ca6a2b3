"""Comity: organisations learn together under differential privacy, each keeping its records and its own budget.

    result = comity.simulate("study.toml")
    result.model.predict(frame)
    result.report("report.html")

Importing the package is cheap: what a name stands for is imported when it is first used.
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any, overload

from comity._version import __version__
from comity.lazily import lazily

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from comity.artefacts.artefact import load_artefact as load_artefact
    from comity.artefacts.dataset import Dataset as Dataset
    from comity.artefacts.table import Table as Table
    from comity.data import Encoding as Encoding
    from comity.data import Records as Records
    from comity.data import Schema as Schema
    from comity.estimators import AveragedClassifier as AveragedClassifier
    from comity.estimators import AveragedRegressor as AveragedRegressor
    from comity.estimators import SoftLabelClassifier as SoftLabelClassifier
    from comity.estimators import VerticalClassifier as VerticalClassifier
    from comity.estimators import VerticalRegressor as VerticalRegressor
    from comity.federation.coordinator.parties import Progress
    from comity.federation.protocol import Protocol
    from comity.learn import load_model as load_model
    from comity.methods.averaging import Averaging as Averaging
    from comity.methods.softlabel import PublishedSoftLabel as PublishedSoftLabel
    from comity.methods.softlabel import SoftLabel as SoftLabel
    from comity.methods.vertical import VerticalRegression as VerticalRegression
    from comity.privacy.ledger import Ledger as Ledger
    from comity.report.result import Result as Result
    from comity.report.result import load_result as load_result
    from comity.study.study import Study as Study

__all__ = [
    "AveragedClassifier",
    "AveragedRegressor",
    "Averaging",
    "Dataset",
    "Encoding",
    "Ledger",
    "PublishedSoftLabel",
    "Records",
    "Result",
    "Schema",
    "SoftLabel",
    "SoftLabelClassifier",
    "Study",
    "Table",
    "VerticalClassifier",
    "VerticalRegression",
    "VerticalRegressor",
    "__version__",
    "load_artefact",
    "load_model",
    "load_result",
    "simulate",
]

_HOMES = {
    "AveragedClassifier": "comity.estimators",
    "AveragedRegressor": "comity.estimators",
    "Averaging": "comity.methods.averaging",
    "Dataset": "comity.artefacts.dataset",
    "Encoding": "comity.data",
    "Ledger": "comity.privacy.ledger",
    "PublishedSoftLabel": "comity.methods.softlabel",
    "Records": "comity.data",
    "Result": "comity.report.result",
    "Schema": "comity.data",
    "SoftLabel": "comity.methods.softlabel",
    "SoftLabelClassifier": "comity.estimators",
    "Study": "comity.study.study",
    "Table": "comity.artefacts.table",
    "VerticalClassifier": "comity.estimators",
    "VerticalRegression": "comity.methods.vertical",
    "VerticalRegressor": "comity.estimators",
    "load_artefact": "comity.artefacts.artefact",
    "load_model": "comity.learn",
    "load_result": "comity.report.result",
}


@overload
def simulate(
    study: str | PathLike[str] | Study,
    *,
    seed: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    run_id: str | None = None,
    progress: Progress | None = None,
    models: Any = None,
    results: bool | None = None,
    repeats: int = 0,
) -> Result: ...
@overload
def simulate(
    study: Protocol,
    *,
    parties: Mapping[str, pd.DataFrame | Records],
    epsilon: float,
    delta: float = 0.0,
    schema: Schema | None = None,
    unit: str = "party",
    neighbours: str = "replace",
    colluders: int | None = None,
    dropouts: int = 0,
    roles: Mapping[str, Sequence[str]] | None = None,
    seed: int | None = None,
    test: pd.DataFrame | Records | None = None,
    baselines: bool = True,
    grant: float | Mapping[str, float] | None = None,
    ledgers: Mapping[str, Ledger] | None = None,
    journal: Path | None = None,
    run_id: str | None = None,
    name: str = "study",
    settings: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    models: Any = None,
    results: bool | None = None,
    hosts: bool = True,
    repeats: int = 0,
) -> Result: ...
def simulate(study: Any, **options: Any) -> Result:
    """Run a study file, or a protocol over these parties' records, on this machine.

    Without a seed the noise is drawn as in a release. With one the run can be repeated and protects nobody; the
    result says so. `overrides` are dotted keys of the study file, as in {"privacy.epsilon": 0.5}. `repeats` more runs
    with fresh simulated noise tell how far the figures vary: `result.assessment.repeats`.
    """
    from comity.errors import StudyError
    from comity.federation.protocol import Protocol
    from comity.report.result import Result
    from comity.study.study import Study

    if isinstance(study, Protocol):
        from comity.study.simulation.simulate import simulate as run

        return Result.of(run(study, study=options.pop("name", "study"), **options))
    overrides = options.pop("overrides", None)
    if isinstance(study, str | PathLike):
        study = Study.load(study, overrides=overrides)  # type: ignore[arg-type]
    elif overrides is not None:
        raise StudyError(
            "overrides change a study file while it is read; give its path, or Study.load(path, overrides=…)"
        )
    if not isinstance(study, Study):
        raise StudyError(f"simulate takes the path of a study, a Study or a protocol, found {type(study).__name__}")
    from comity.study.simulation.run import run_study

    return Result.of(run_study(study, **options))


__getattr__, __dir__ = lazily(globals(), _HOMES)
