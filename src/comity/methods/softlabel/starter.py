"""Generated clinics whose classifiers vote on public records."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from comity.data import clinic_schema, clinics, public_cohort

CLINICS, VISITS, PUBLIC, TESTED = 300, 25, 500, 2000
# As many parties as in the paper's Figure 2: the noise of its method falls with their number.
PUBLISHED_CLINICS, PUBLISHED_VISITS = 1000, 12

_STUDY = """\
# What the parties agree on. `comity plan study.toml` shows what it would release; nothing is read or spent by that.

[study]
name = "{name}"
purpose = "learn from many small clinics which visits lead to a readmission"
protocol = "softlabel"          # parties learn locally and vote on public records; one noisy sum of it is opened
schema = "schema.toml"          # the public description of a record: bounds and categories are agreed, never measured

[privacy]
unit = "party"                  # who is protected: a whole clinic, with all of its records
neighbours = "replace"          # the study is compared with one in which a clinic was replaced
epsilon = 1.0                   # the loss per clinic; smaller is more private and less exact
delta = 1e-6                    # 0, or left out, for pure differential privacy
colluders = 1                   # clinics that may pool what they saw with the coordinator

[softlabel]
auxiliary = "public.parquet"    # public, unlabelled records; part of the study's hash
statistic = "auto"              # what is summed: chosen from public quantities, and the plan says why
sizes = {visits}                      # how many records a clinic has: declared, never counted
scaling = "scaled"              # how a record enters the unit ball: all divided by the one bound that holds for any

[parties]
count = {clinics}                     # who takes part; in a deployment each has a [parties.NAME] table with its keys

[simulation]                    # where a simulation finds its records; a deployment ignores this table
data = "records.parquet"        # one file, split by the rule below, or one file per party
split = "by-column"             # each value of the column below is a party
column = "clinic"
test = "test.parquet"           # records that no party has, to measure the error on
baselines = true                # compare with a constant, with own data alone, with everything pooled
grant = 3.0                     # the epsilon in each simulated clinic's ledger
"""

_PUBLISHED = """\
# The method of Hamm, Cao and Belkin (2016) with the constants of their paper. `comity plan study.toml` shows the loss
# that the paper claims beside the loss that holds; nothing is read or spent by that.

[study]
name = "{name}"
protocol = "softlabel"
schema = "schema.toml"          # the public description of a record: bounds and categories are agreed, never measured

[privacy]
unit = "party"                  # who is protected: a whole clinic, with all of its records
neighbours = "replace"          # the study is compared with one in which a clinic was replaced
epsilon = 10.0                  # the paper's 1/epsilon = 0.1; pure, without a delta

[softlabel]
variant = "published"           # the coordinator is trusted: it reads every clinic's votes
auxiliary = "public.parquet"    # public, unlabelled records; part of the study's hash
method = "soft"                 # Algorithm 2; "vote" is Algorithm 1, "avg" the average of Pathak, Rane and Raj
# l2 = 1e-4                     # the paper's penalty; noise is scaled by its inverse, so 1e-2 has a hundredth of it
# sensitivity = "paper"         # the printed bounds 2/(M l2) and 2/l2; "tight" halves the noise at the same loss
# intercept = false             # the paper's classifiers have no constant feature

[parties]
count = {clinics}

[simulation]                    # where a simulation finds its records; a deployment ignores this table
data = "records.parquet"        # one file, split by the rule below, or one file per party
split = "by-column"             # each value of the column below is a party
column = "clinic"
test = "test.parquet"           # records that no party has, to measure the error on
baselines = true                # compare with a constant, with own data alone, with everything pooled
grant = 30.0                    # the epsilon in each simulated clinic's ledger
"""


def write(folder: Path) -> None:
    _write_records(folder, CLINICS, VISITS)
    study = _STUDY.format(name=folder.name, clinics=CLINICS, visits=VISITS)
    (folder / "study.toml").write_text(study, encoding="utf-8")


def write_published(folder: Path) -> None:
    """The same clinics, more of them with fewer records, in a study of the published method."""
    _write_records(folder, PUBLISHED_CLINICS, PUBLISHED_VISITS)
    study = _PUBLISHED.format(name=folder.name, clinics=PUBLISHED_CLINICS)
    (folder / "study.toml").write_text(study, encoding="utf-8")


def _write_records(folder: Path, number: int, records: int) -> None:
    visits = clinics(number, records, "comity new")
    together = pd.concat([table.assign(clinic=clinic) for clinic, table in visits.items()], ignore_index=True)
    # Other clinics of the same kind: the error is that of a newcomer who uses the model.
    tested = pd.concat(clinics(TESTED // 100, 100, "comity new, test").values(), ignore_index=True)
    together.drop(columns="disposition").to_parquet(folder / "records.parquet", index=False)
    tested.drop(columns="disposition").to_parquet(folder / "test.parquet", index=False)
    public_cohort(PUBLIC, "comity new, public").to_parquet(folder / "public.parquet", index=False)
    (folder / "schema.toml").write_text(clinic_schema("readmitted").to_toml(), encoding="utf-8")
