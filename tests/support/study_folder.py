"""The folder of a small study: study file, schema, public records, records of all parties, and test records."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from comity.data import clinic_schema, clinics, public_cohort

PARTIES = 5

STUDY = f"""\
[study]
name = "small"
protocol = "softlabel"
schema = "schema.toml"

[privacy]
epsilon = 2.0
delta = 1e-6

[softlabel]
variant = "published"
method = "avg"
auxiliary = "public.csv"
scaling = "normalised"

[parties]
count = {PARTIES}

[simulation]
data = "records.csv"
split = "by-column"
column = "clinic"
test = "test.csv"
"""


def write_study(folder: Path, *, text: str = STUDY, parties: int = PARTIES, records: int = 12) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    visits = clinics(parties, records, "tests")
    together = pd.concat([table.assign(clinic=name) for name, table in visits.items()], ignore_index=True)
    together.to_csv(folder / "records.csv", index=False)
    pd.concat(clinics(2, 50, "tests, test").values()).to_csv(folder / "test.csv", index=False)
    public_cohort(40, "tests").to_csv(folder / "public.csv", index=False)
    (folder / "schema.toml").write_text(clinic_schema("readmitted").to_toml())
    (folder / "study.toml").write_text(text)
    return folder / "study.toml"
