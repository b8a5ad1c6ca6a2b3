"""Vertical regression in the demonstration: a hospital and a surgery hold different columns of the same patients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from comity.data import Records, clinic_schema, clinics
from comity.demo.runs import saved
from comity.demo.shown import DELTA, EPSILONS, Case, Row, Shown, row_of
from comity.federation.coordinator.parties import Progress
from comity.federation.declare.consortium import Consortium
from comity.methods.vertical import GradientRegression, VerticalRegression
from comity.methods.vertical.in_one_place import noised
from comity.methods.vertical.rounds_in_one_place import descended
from comity.privacy.loss import Approx, Pure
from comity.privacy.randomness import SeededNoise
from comity.privacy.unit import Unit

NAME = "vertical"
METHODS = ("Gaussian", "pure")
HOSPITAL = ("age", "sex", "arrival", "ward", "readmitted")
SURGERY = ("triage", "heart_rate", "systolic", "temperature", "saturation", "lactate", "creatinine", "prior_visits")
PATIENTS, SAVED, TESTED = 20_000, 4000, 2000
SAVED_EPSILON, GRANT = 3.0, 5.0


def demonstrate(folder: Path, said: Progress, repeats: int) -> Shown:
    """Both kinds of noise at every ε, and one run without a seed in `folder`."""
    said("vertical: generating records")
    people, tested = patients(PATIENTS, "demo, vertical"), patients(TESTED, "demo, vertical test")
    rows = tuple(measured(people, tested, repeats, said))
    said("vertical: one run without a seed")
    method = GradientRegression(quadratic=protocol(pure=False), solver="auto")
    result = saved(
        folder,
        method,
        epsilon=SAVED_EPSILON,
        parties=dealt(method, people.iloc[:SAVED]),
        test=method.encoding.encode(tested, where="test").records,
        grant=GRANT,
        study="demo patients",
    )
    about = (
        f"A generated hospital and a surgery that hold {len(HOSPITAL) - 1} and {len(SURGERY)} columns of {PATIENTS:,} "
        f"common patients; will the patient be readmitted? The run without a seed has {SAVED:,} of them. Tested on "
        f"{TESTED:,} other patients."
    )
    return Shown(
        NAME,
        "Vertical regression",
        "one model over columns at different owners, from noisy sums of products (after Xu, Yuan, Wu 2019)",
        "a record, replaced",
        METHODS,
        (Case("patients", about, rows),),
        NOTES,
        f"{repeats} draws of the noise",
        result,
    )


NOTES = (
    "Sums of products within an owner and across owners are noised on shares, before anything is opened: nobody sees "
    "an exact one. Gaussian is the default with delta above 0, with private rounds after those sums, pure (Laplace) "
    "the one without. Own data is the owner of the label alone.",
    "The tables add the same noise to the same sums with all columns in one place, which a test compares with the "
    "secure run number by number; the run without a seed is the secure one.",
)


def patients(count: int, name: str) -> pd.DataFrame:
    return pd.concat(clinics(count // 100, 100, name).values(), ignore_index=True)


def protocol(*, pure: bool) -> VerticalRegression:
    columns = {"hospital": HOSPITAL, "surgery": SURGERY}
    return VerticalRegression(schema=clinic_schema("readmitted"), columns=columns, pure=pure, most=1 << 16)


def dealt(method: VerticalRegression | GradientRegression, people: pd.DataFrame) -> dict[str, Records]:
    return {party: method.encoding_of(party).encode(people, where=party).records for party in method.columns}


def measured(people: pd.DataFrame, tested: pd.DataFrame, repeats: int, said: Progress) -> list[Row]:
    rows = []
    for name in METHODS:
        said(f"vertical: {name}, error against epsilon")
        method = protocol(pure=name == "pure")
        rounds, owners = GradientRegression(quadratic=method, solver="auto"), dealt(method, people)
        test = method.encoding.encode(tested, where="test").records
        compared = method.compare(list(owners.values()), test)
        columns = {party: method.layout.matrix(records, party) for party, records in owners.items()}
        exact = method.dissection.exact(np.hstack(list(columns.values())))
        for epsilon in EPSILONS:
            loss = Pure(epsilon) if method.pure else Approx(epsilon, DELTA)
            who = Consortium(parties=tuple(method.columns), loss=loss, unit=Unit.RECORD)
            errors = []
            for seed in range(repeats):
                source = SeededNoise(seed)
                if rounds.descends(who):
                    coef, _ = descended(rounds, columns, who, source)
                else:
                    coef = method.fit(noised(method, exact, who, source), len(people), who).coef
                errors.append(method.score(method.model(coef), test))
            rows.append(row_of(NAME, "patients", name, epsilon, errors, compared))
    return rows
