"""Every method in each of its variants and choices, as a study of a few records: read off the registry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pandas as pd

from comity.data import Bounded, clinic_schema, clinics, public_cohort
from comity.errors import ComityError
from comity.methods import PROTOCOLS, method_of
from comity.study.study import Study

HOSPITAL = ("age", "sex", "arrival", "ward", "readmitted")
SURGERY = ("triage", "heart_rate", "systolic", "temperature", "saturation", "lactate", "creatinine", "prior_visits")

_HEAD = """\
[study]
name = "small"
protocol = "{protocol}"
schema = "schema.toml"
[privacy]
unit = "{unit}"
epsilon = 20.0
{delta}
"""
_COLUMNS = f"""\
[parties.hospital]
columns = {list(HOSPITAL)}
[parties.surgery]
columns = {list(SURGERY)}
[simulation]
data = "people.csv"
grant = 1000.0
split = "by-features"
"""
_TAILS = {
    "softlabel": """\
[softlabel]
auxiliary = "public.csv"
rows = "normalised"
[parties]
count = 3
[simulation]
data = "records.csv"
grant = 1000.0
split = "by-column"
column = "clinic"
""",
    "averaging": """\
[averaging]
rows = "normalised"
[parties.clinic-01]
[parties.clinic-02]
[parties.clinic-03]
[simulation]
data = "records.csv"
grant = 1000.0
split = "by-column"
column = "clinic"
""",
    "summary": """\
[summary]
auxiliary = "public.csv"
records = 5
dimensions = 20
sizes = { clinic-01 = 8, clinic-02 = 8, clinic-03 = 8 }
[parties.clinic-01]
role = "owner"
[parties.clinic-02]
role = "owner"
[parties.clinic-03]
role = "consumer"
[simulation]
data = "records.csv"
split = "by-column"
column = "clinic"
""",
    "synthetic": """\
[parties.clinic-01]
[parties.clinic-02]
[parties.clinic-03]
[simulation]
data = "records.csv"
grant = 1000.0
split = "by-column"
column = "clinic"
""",
    "vertical": f"[vertical]\nmax_rows = 256\n{_COLUMNS}",
    "synthetic columns": f"[synthetic]\nrows_at_most = 256\n{_COLUMNS}",
}
# Keys of a method that has them where parties hold different columns alone.
_OF_COLUMNS = {"synthetic": ("products", "alignment")}
# What a variant, or a value of a key, needs beside the defaults to be small, or to run at all.
_ALSO: dict[str, dict[str, Any]] = {
    "averaging default": {"averaging.sizes": 8},
    "averaging model": {"averaging.rounds": 2},
    "averaging published": {"privacy.colluders": 0},
    "softlabel default": {"softlabel.sizes": 10},
    "feature_map": {"softlabel.statistic": "votes"},
    "feature_map=pca": {"softlabel.dimensions": 3},
    "feature_map=random": {"softlabel.dimensions": 3},
    "auxiliary_privacy=private": {"softlabel.method": "soft", "softlabel.auxiliary_records": 20},
    "synthetic products": {"synthetic.model": "naive-bayes", "simulation.baselines": False},
    "synthetic alignment": {"synthetic.model": "naive-bayes", "simulation.baselines": False},
    "vertical delta=1e-6": {"vertical.rounds": 2},
    "vertical products": {"vertical.rounds": 2},
    "vertical alignment": {"vertical.solver": "quadratic"},
    "vertical solver=gradient": {"vertical.products": "dealer", "vertical.rounds": 2},
}
_PURE = ("averaging published", "synthetic published", "vertical published")


def _cases() -> list[str]:
    """Each variant by itself, pure and not, and with each value of each of its keys that has named values."""
    found = []
    for protocol in PROTOCOLS:
        table = method_of(protocol)
        variants = get_args(table.model_fields["variant"].annotation)
        for variant in variants:
            found += [f"{protocol} {variant} delta=1e-6", f"{protocol} {variant} delta=0"]
            for key, field in table.model_fields.items():
                kinds = [field.annotation, *get_args(field.annotation)]
                literal = next((kind for kind in kinds if get_origin(kind) is Literal), None)
                if literal is not None and key not in ("variant", "scaling"):
                    # The default of a key is the variant by itself.
                    others = [value for value in get_args(literal) if value != field.default]
                    found += [f"{protocol} {variant} {key}={value}" for value in others]
    return found


CASES = _cases()


def small_study(case: str, folder: Path, **overrides: Any) -> Study:
    """The study of a case, with its files in `folder`; refused cases raise as they would for a user."""
    text, chosen = small_text(case)
    write_records(folder, numeric=case.endswith("=linear"))
    return Study.parse(text, folder=folder, overrides={**chosen, **overrides})


def small_text(case: str) -> tuple[str, dict[str, Any]]:
    """The study file of a case, and the keys to override in it."""
    protocol, variant, setting = case.split(" ", 2)
    key, _, value = setting.partition("=")
    pure = setting == "delta=0" or (key != "delta" and f"{protocol} {variant}" in _PURE)
    text = _HEAD.format(
        protocol=protocol,
        unit="party" if protocol == "softlabel" else "record",
        delta="" if pure else "delta = 1e-6",
    )
    chosen: dict[str, Any] = {f"{protocol}.variant": variant}
    for needed in (f"{protocol} {variant}", key, setting, f"{protocol} {key}", f"{protocol} {setting}"):
        if variant == "default" or needed in ("auxiliary_privacy=private", "averaging published"):
            chosen |= _ALSO.get(needed, {})
    if key != "delta":
        chosen[f"{protocol}.{key}"] = value
    tail = _TAILS[f"{protocol} columns" if key in _OF_COLUMNS.get(protocol, ()) else protocol]
    return text + tail, chosen


def write_records(folder: Path, *, numeric: bool) -> None:
    visits = clinics(3, 10, "small studies")
    together = pd.concat([table.assign(clinic=name) for name, table in visits.items()], ignore_index=True)
    together["patient"] = [f"P{number:03d}" for number in range(len(together))]
    schema = clinic_schema("readmitted")
    if numeric:
        together["readmitted"] = together["age"] / 10
        schema = replace(schema, target=Bounded("readmitted", 0, 10))
    together.to_csv(folder / "records.csv", index=False)
    together.drop(columns=["clinic", "disposition"]).to_csv(folder / "people.csv", index=False)
    public_cohort(20, "small studies").to_csv(folder / "public.csv", index=False)
    (folder / "schema.toml").write_text(schema.to_toml())


def refusal(case: str, folder: Path) -> ComityError | None:
    try:
        small_study(case, folder).plan()
    except ComityError as error:
        return error
    return None
