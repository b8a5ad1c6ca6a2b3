"""A generated hospital and a surgery that hold different columns of the same patients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from comity.data import clinic_schema, clinics
from comity.entropy import Stream

PATIENTS, TESTED = 20_000, 3000
HOSPITAL = ("age", "sex", "arrival", "ward", "readmitted")
SURGERY = ("triage", "heart_rate", "systolic", "temperature", "saturation", "lactate", "creatinine", "prior_visits")

_STUDY = """\
# What the parties agree on. `comity plan study.toml` shows what it would release; nothing is read or spent by that.

[study]
name = "{name}"
purpose = "learn from hospital and surgery records together which patients are readmitted"
protocol = "vertical"           # one regression over columns at different owners; only noisy sums are opened
schema = "schema.toml"          # the public description of a whole record, with the identifier that rows are matched by

[privacy]
unit = "record"                 # who is protected: one patient, at all owners together
neighbours = "replace"          # the number of common patients is public
epsilon = 1.0                   # the loss of each patient
delta = 1e-6                    # 0, or left out, for pure differential privacy
colluders = 1                   # owners that may pool what they saw with the coordinator

[vertical]
solver = "auto"                 # two classes: private rounds after the sums of products, where they help
products = "rlwe"               # products across owners without a dealer; "dealer" is faster and trusts one
alignment = "keyed"             # how rows are matched: the plan says who learns what; "ecdh" trusts less

[parties.hospital]
columns = [{hospital}]
[parties.surgery]
columns = [{surgery}]

[simulation]                    # where a simulation finds its records; a deployment ignores this table
data = {{hospital = "hospital.parquet", surgery = "surgery.parquet"}}
test = "test.parquet"           # whole records that no party has, to measure the error on
baselines = true
grant = 3.0                     # the epsilon in each simulated owner's ledger
"""

_PUBLISHED = """\
# Algorithm 1 of Xu, Yuan and Wu (2019) as printed. `comity plan study.toml` shows the loss that the paper claims beside
# the loss that holds: parties read exact sums of each other's columns, so sites refuse it unless their policy has
# unproven = true. The default method has one noise on shares, and no party reads an exact sum.

[study]
name = "{name}"
protocol = "vertical"
schema = "schema.toml"          # the public description of a whole record, with the identifier that rows are matched by

[privacy]
unit = "record"
neighbours = "replace"
epsilon = 1.0                   # Tables 1 and 3 of the paper have 0.1, 1 and 10
delta = 0                       # Laplace noise

[vertical]
variant = "published"           # each repair is an option, and off:
# repair = "zhang"              # a ridge and trimming for objectives without a minimum; the paper's figures need it
# sensitivity = "tight"         # the true sensitivity, half of the printed one: half of the noise
# intercept = true              # a constant feature
alignment = "keyed"             # the paper assumes that rows are in one order

# [vertical.block_epsilon]      # Corollary 1: budgets from the bottom up, for each party and for each pair
# hospital = 0.3
# surgery = 0.3
# "hospital+surgery" = 0.4

[parties.hospital]
columns = [{hospital}]
[parties.surgery]
columns = [{surgery}]

[simulation]                    # where a simulation finds its records; a deployment ignores this table
data = {{hospital = "hospital.parquet", surgery = "surgery.parquet"}}
test = "test.parquet"           # whole records that no party has, to measure the error on
baselines = true
grant = 3.0                     # the epsilon in each simulated owner's ledger
"""


def write(folder: Path) -> None:
    _write(folder, _STUDY)


def write_published(folder: Path) -> None:
    _write(folder, _PUBLISHED)


def _write(folder: Path, text: str) -> None:
    together = pd.concat(clinics(PATIENTS // 100, 100, "comity new, vertical").values(), ignore_index=True)
    # One row per patient: a person who came twice would be two records.
    together["patient"] = [f"P{number:07d}" for number in range(len(together))]
    tested = pd.concat(clinics(TESTED // 100, 100, "comity new, vertical test").values(), ignore_index=True)
    for name, columns, left_out in (("hospital", HOSPITAL, 0), ("surgery", SURGERY, 1)):
        order = Stream.public("comity new", name).permutation(len(together))
        # Each owner knows some patients that the other does not, in another order.
        kept = order[np.arange(len(order)) % 20 != left_out]
        together.iloc[kept][["patient", *columns]].to_parquet(folder / f"{name}.parquet", index=False)
    tested.drop(columns="disposition").to_parquet(folder / "test.parquet", index=False)
    (folder / "schema.toml").write_text(clinic_schema("readmitted").to_toml(), encoding="utf-8")
    study = text.format(
        name=folder.name,
        hospital=", ".join(f'"{column}"' for column in HOSPITAL),
        surgery=", ".join(f'"{column}"' for column in SURGERY),
    )
    (folder / "study.toml").write_text(study, encoding="utf-8")
