"""Comity: organisations learn together under differential privacy, each keeping its records and its own budget.

    result = comity.simulate("study.toml")
    result.model.predict(frame)
    result.report("report.html")

`import comity` is fast: each name imports its module when it is first used.
"""

from __future__ import annotations

from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from comity._version import __version__
from comity.lazy_exports import export_lazily

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
    from comity.learn import load_model as load_model
    from comity.methods.averaging import Averaging as Averaging
    from comity.methods.softlabel import SoftLabel as SoftLabel
    from comity.methods.summary import Summary as Summary
    from comity.methods.synthetic import Synthetic as Synthetic
    from comity.methods.vertical import Vertical as Vertical
    from comity.privacy.ledger import Ledger as Ledger
    from comity.report.result import load_result as load_result
    from comity.study.forecast.forecast import forecast as forecast
    from comity.study.results.result import Result as Result
    from comity.study.study import Study as Study

__all__ = [
    "AveragedClassifier",
    "AveragedRegressor",
    "Averaging",
    "Dataset",
    "Encoding",
    "Ledger",
    "Records",
    "Result",
    "Schema",
    "SoftLabel",
    "SoftLabelClassifier",
    "Study",
    "Summary",
    "Synthetic",
    "Table",
    "Vertical",
    "VerticalClassifier",
    "VerticalRegressor",
    "__version__",
    "forecast",
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
    "Records": "comity.data",
    "Result": "comity.study.results.result",
    "Schema": "comity.data",
    "SoftLabel": "comity.methods.softlabel",
    "SoftLabelClassifier": "comity.estimators",
    "Study": "comity.study.study",
    "Summary": "comity.methods.summary",
    "Synthetic": "comity.methods.synthetic",
    "Table": "comity.artefacts.table",
    "Vertical": "comity.methods.vertical",
    "VerticalClassifier": "comity.estimators",
    "VerticalRegressor": "comity.estimators",
    "forecast": "comity.study.forecast.forecast",
    "load_artefact": "comity.artefacts.artefact",
    "load_model": "comity.learn",
    "load_result": "comity.report.result",
}


def simulate(
    study: str | PathLike[str] | Study,
    *,
    seed: int | None = None,
    frames: Mapping[str, pd.DataFrame] | None = None,
    test: pd.DataFrame | None = None,
    folder: Path | None = None,
    models: Any = None,
    ledgers: Mapping[str, Ledger] | None = None,
    progress: Progress | None = None,
    repeats: int = 0,
    evaluate_by: Sequence[str] = (),
) -> Result:
    """Run a study on this machine: a study file, or what `comity.Averaging(schema).study(...)` gives.

        result = comity.simulate("study.toml", seed=7)

    Without a seed the noise is drawn as in a release. With a seed the run can be repeated and protects nobody; the
    result says so. `frames` are the parties' records by name, in place of the files that the study names, and `test`
    are records to measure on. `folder` stores ledgers and journal: an interrupted run resumes from it. `ledgers` are
    the parties' own ledgers. `repeats` runs it that many more times with fresh simulated noise, to show how far the
    figures vary (`result.assessment.repeats`). `evaluate_by` names columns whose subgroups are compared in
    `result.subgroups`, and "party", for which a column `party` of `test` names each record's party.
    """
    from comity.errors import StudyError
    from comity.study.study import Study

    if isinstance(study, str | PathLike):
        study = Study.load(fspath(study))
    if not isinstance(study, Study):
        raise StudyError(f"simulate takes the path of a study or a Study, found {type(study).__name__}")
    from comity.study.simulation.simulate import run_study

    return run_study(
        study,
        seed=seed,
        frames=frames,
        test=test,
        folder=folder,
        models=models,
        ledgers=ledgers,
        progress=progress,
        repeats=repeats,
        evaluate_by=evaluate_by,
    )


__getattr__, __dir__ = export_lazily(globals(), _HOMES)
