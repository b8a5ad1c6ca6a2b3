"""Synthetic data in the demonstration: hospitals release one dataset, and a classifier learns from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd

from comity.data import Records, clinic_schema
from comity.demo.runs import presented, saved, visits
from comity.demo.shown import DELTA, EPSILONS, Case, Row, Shown, row_of
from comity.federation.coordinator.parties import Progress
from comity.federation.declare.consortium import Consortium
from comity.methods.synthetic import SyntheticData
from comity.methods.synthetic.downstream import Task
from comity.privacy.loss import Approx, Pure
from comity.privacy.unit import Neighbours, Unit

NAME = "synthetic"
METHODS = ("delta", "pure")
SIZES = {"ashford": 2200, "birkdale": 1900, "calder": 1700, "dunmore": 1500, "elstow": 1300, "farleigh": 1000}
TESTED = 2000
# A model is fitted anew to the counts of each run.
WHOLE_RUNS = 2
SAVED_EPSILON, GRANT = 1.0, 3.0


def demonstrate(folder: Path, said: Progress, repeats: int) -> Shown:
    """Datasets with and without a δ at every ε, and one run without a seed in `folder`."""
    said("synthetic: generating records")
    schema = replace(clinic_schema("readmitted"), identifier=None)
    method = SyntheticData(schema=schema, rows=10_000)
    hospitals = {name: visits(method.encoding, size, f"demo, synthetic {name}") for name, size in SIZES.items()}
    test = visits(method.encoding, TESTED, "demo, synthetic test")
    rows = tuple(measured(method, hospitals, test, min(repeats, WHOLE_RUNS), said))
    said("synthetic: one run without a seed")
    result = saved(
        folder,
        method,
        epsilon=SAVED_EPSILON,
        parties=hospitals,
        neighbours="add-remove",
        test=test,
        grant=GRANT,
        study="demo dataset",
        results=False,
    )
    about = (
        f"{len(SIZES)} generated hospitals with {min(SIZES.values()):,} to {max(SIZES.values()):,} visits each release "
        f"one dataset; a logistic regression that saw nothing else is tested on {TESTED:,} visits at other hospitals."
    )
    return Shown(
        NAME,
        "Synthetic data",
        "one dataset of all records, made of noisy two-way counts (after Fioretto, Van Hentenryck 2019)",
        "a record, added or removed",
        METHODS,
        (Case("hospitals", about, rows),),
        NOTES,
        f"{min(repeats, WHOLE_RUNS)} draws of the noise, a whole run each",
        result,
    )


NOTES = (
    "The hospitals' counts of every column and pair of columns are opened once, with noise that all of them share. The "
    "dataset, and whatever else is made of the counts, costs nothing more. pure has Laplace noise and no delta.",
)


def measured(
    method: SyntheticData, hospitals: dict[str, Records], test: Records, repeats: int, said: Progress
) -> list[Row]:
    task = Task(method.cells)
    tested = task.examples(test)
    compared = task.compare(list(hospitals.values()), tested)
    rows = []
    for name in METHODS:
        for at, epsilon in enumerate(EPSILONS):
            said(f"synthetic: {name}, error against epsilon {at}/{len(EPSILONS)}")
            errors = []
            for seed in range(repeats):
                made = method.encoding.encode(released(method, hospitals, epsilon, seed, pure=name == "pure")).records
                errors.append(task.linear(task.examples(made), tested))
            rows.append(row_of(NAME, "hospitals", name, epsilon, errors, compared))
    return rows


def released(
    method: SyntheticData, hospitals: dict[str, Records], epsilon: float, seed: int, *, pure: bool
) -> pd.DataFrame:
    """The rows of a seeded run."""
    who = Consortium(
        parties=tuple(hospitals),
        loss=Pure(epsilon) if pure else Approx(epsilon, DELTA),
        unit=Unit.RECORD,
        neighbours=Neighbours.ADD_REMOVE,
    )
    found: pd.DataFrame = presented(method, who, hospitals, seed).frame
    return found
