"""Generated visits to emergency departments, which differ as real sites do.

No record is of a person: all come from a public stream and the coefficients below. Sites differ in the age of their
patients, in their case mix, in how patients arrive, and in how often and how exactly they measure. The reasons for
which patients come back are the same everywhere, up to a small habit of each site. So sites can learn from each other,
and a small one can't learn alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from comity.data.schemas.columns import Categorical, Classes, Column, Numeric, Ordinal
from comity.data.schemas.schema import Schema
from comity.entropy import Stream
from comity.errors import StudyError

ARRIVALS = ("walk-in", "ambulance", "referral")
WARDS = ("medical", "surgical", "cardiac", "geriatric")
TRIAGE = ("non-urgent", "standard", "urgent", "very urgent", "immediate")
DISPOSITIONS = ("home", "ward", "intensive")

# The ways in which sites differ.
_SHIFTS = ("age", "acuity", "ambulance", "referral", "measured", "habit")

Values = NDArray[np.float64]


def clinic_schema(target: Literal["readmitted", "disposition"] | None = "readmitted") -> Schema:
    """The public description of a visit. The target `readmitted` has two classes, `disposition` three; None is no
    target.

    Bounds are those of instruments and of human physiology, known without any record.
    """
    columns: tuple[Column, ...] = (
        Numeric("age", 18, 100, integer=True, edges=(40, 55, 65, 75, 85)),
        Categorical("sex", ("f", "m"), other=True, missing="other"),
        Categorical("arrival", ARRIVALS),
        Categorical("ward", WARDS, other=True),
        Ordinal("triage", TRIAGE),
        Numeric("heart_rate", 30, 200, edges=(60, 80, 100, 120)),
        Numeric("systolic", 60, 240, edges=(90, 110, 130, 150)),
        Numeric("temperature", 33, 42),
        Numeric("saturation", 70, 100),
        Numeric("lactate", 0, 12, missing="fill", fill=1.5, edges=(1, 2, 4)),
        Numeric("creatinine", 20, 400, missing="fill", fill=85),
        Numeric("prior_visits", 0, 12, integer=True, edges=(1, 2, 4)),
    )
    targets = {
        "readmitted": Classes("readmitted", ("no", "yes")),
        "disposition": Classes("disposition", DISPOSITIONS),
    }
    if target is None:
        return Schema(columns)
    if target not in targets:
        raise StudyError(f"target: expected one of {', '.join(targets)}, found {target!r}; choose one.", key="target")
    return Schema(columns, targets[target], "patient")


def clinics(parties: int, records: int | Sequence[int], seed_label: str = "clinics") -> dict[str, pd.DataFrame]:
    """The visits of each clinic, by its name, with `patient`, features and both targets; the same for the same
    label."""
    sizes = [records] * parties if isinstance(records, int) else list(records)
    if parties < 1 or len(sizes) != parties or min(sizes) < 0:
        raise StudyError(
            f"clinics: expected at least one clinic and a size >= 0 for each, found {parties} and "
            f"{records!r}; correct them.",
            key="clinics",
        )
    stream = Stream.public("comity clinics", seed_label)
    site = np.repeat(np.arange(parties), sizes)
    table = _visits(len(site), {name: stream.normal(parties)[site] for name in _SHIFTS}, stream)
    table.insert(0, "patient", [f"P{number:07d}" for number in stream.permutation(len(site))])
    width = max(2, len(str(parties)))
    ends = np.cumsum(sizes)
    return {
        f"clinic-{index + 1:0{width}d}": table.iloc[end - size : end].reset_index(drop=True)
        for index, (size, end) in enumerate(zip(sizes, ends))
    }


def public_cohort(records: int, seed_label: str = "public cohort") -> pd.DataFrame:
    """Visits from a public pool, a mix of all kinds of sites, without identifiers and targets."""
    if records < 0:
        raise StudyError(
            f"public_cohort: expected a number of records >= 0, found {records}; correct it.", key="records"
        )
    stream = Stream.public("comity clinics", "public", seed_label)
    table = _visits(records, {name: stream.normal(records) for name in _SHIFTS}, stream)
    return table.drop(columns=["readmitted", "disposition"])


def _visits(count: int, shift: dict[str, Values], stream: Stream) -> pd.DataFrame:
    age = np.clip(np.round(58 + 8 * shift["age"] + 18 * stream.normal(count)), 18, 100)
    old = (age - 58) / 20
    acuity = 0.35 * shift["acuity"] + 0.35 * old + stream.normal(count)
    prior = np.minimum(np.floor(-np.log(stream.uniform(count)) * np.exp(0.3 + 0.35 * old)), 12)
    kidney = 0.5 * old + stream.normal(count)

    sex = _choose(stream, ("f", "m", "x"), np.tile([0.5, 0.485, 0.015], (count, 1)))
    pull = np.stack(
        [np.zeros(count), 0.9 * acuity + 0.5 * shift["ambulance"] - 0.4, 0.6 * shift["referral"] - 0.9],
        axis=1,
    )
    arrival = _choose(stream, ARRIVALS, np.exp(pull))
    case = np.stack(
        [np.full(count, 0.6), np.full(count, 0.1), 0.5 * old - 0.2, 1.4 * old - 0.9, np.full(count, -2.5)],
        axis=1,
    )
    ward = _choose(stream, (*WARDS, "day unit"), np.exp(case))

    heart = 84 + 11 * acuity + 14 * stream.normal(count)
    pressure = 132 - 11 * acuity + 5 * old + 17 * stream.normal(count)
    temperature = 37 + 0.35 * acuity + 0.6 * stream.normal(count)
    saturation = np.minimum(96.5 - 1.6 * acuity - 0.5 * old + 1.8 * stream.normal(count), 100)
    lactate = np.exp(0.35 + 0.42 * acuity + 0.35 * stream.normal(count))
    creatinine = np.exp(4.4 + 0.28 * kidney + 0.1 * stream.normal(count))
    grade = np.clip(np.digitize(acuity + 0.45 * stream.normal(count), [-1.2, 0.0, 1.0, 1.9]), 0, 4)

    urgent_arrival = arrival == "ambulance"
    risk = 0.8 * old + 0.6 * acuity + 0.65 * (prior - 1.2) + 0.7 * kidney + 0.8 * urgent_arrival + 0.9 * (sex == "m")
    risk += 1.0 * (ward == "geriatric") - 1.2 * (ward == "surgical") + 0.25 * shift["habit"] - 0.95
    readmitted = stream.uniform(count) < expit(risk)
    severity = 1.6 * acuity + 0.7 * old + 0.4 * kidney + 1.3 * urgent_arrival + 0.7 * _logistic(stream, count)
    disposition = np.digitize(severity, [0.7, 2.9])

    # Lactate is measured if the patient looks ill, and at some sites more readily than at others.
    unmeasured = stream.uniform(count) > expit(0.6 + 0.9 * acuity + 0.8 * shift["measured"])
    skipped = stream.uniform(count) > expit(2.6 + 0.6 * shift["measured"])
    return pd.DataFrame(
        {
            "age": age.astype(np.int64),
            "sex": sex,
            "arrival": arrival,
            "ward": ward,
            "triage": np.array(TRIAGE, object)[grade],
            "heart_rate": np.round(heart),
            # Half of the sites read the cuff to the nearest ten.
            "systolic": np.where(shift["measured"] < 0, np.round(pressure, -1), np.round(pressure)),
            "temperature": np.round(temperature, 1),
            "saturation": np.round(saturation),
            "lactate": np.where(unmeasured, np.nan, np.round(lactate, 1)),
            "creatinine": np.where(skipped, np.nan, np.round(creatinine)),
            "prior_visits": prior.astype(np.int64),
            "readmitted": np.where(readmitted, "yes", "no").astype(object),
            "disposition": np.array(DISPOSITIONS, object)[disposition],
        }
    )


def _choose(stream: Stream, names: Sequence[str], weights: Values) -> NDArray[Any]:
    """A name per row, with probabilities proportional to the row's weights."""
    edges = np.cumsum(weights, axis=1)
    drawn = (edges[:, :-1] < stream.uniform(len(weights))[:, None] * edges[:, -1:]).sum(axis=1)
    chosen: NDArray[Any] = np.array(names, object)[drawn]
    return chosen


def _logistic(stream: Stream, count: int) -> Values:
    uniform = stream.uniform(count)
    return np.log(uniform) - np.log1p(-uniform)
