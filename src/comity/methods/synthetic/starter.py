"""Hospitals with generated records release one dataset of all of them; as published, each releases its own."""

from __future__ import annotations

from pathlib import Path

from comity.methods.generated_hospitals import write_hospitals

SIZES = {"ashford": 2200, "birkdale": 1900, "calder": 1700, "dunmore": 1500, "elstow": 1300, "farleigh": 1000}

_STUDY = """\
# What the parties agree on. `comity plan study.toml` shows what it would release; it reads and spends nothing.

[study]
name = "{name}"
purpose = "give researchers a dataset to develop and test their programs with"
protocol = "synthetic"          # noisy counts of all pairs of columns, opened once; a dataset is made from them
schema = "schema.toml"          # the public description of a record: bounds, bins and categories, never measured

[privacy]
unit = "record"                 # who is protected: one visit
neighbours = "add-remove"       # how many records there are is protected too; "replace" where that is public
epsilon = 1.0                   # the loss of each record; smaller is more private and less exact
delta = 1e-6                    # 0, or left out, for pure differential privacy
colluders = 1                   # how many hospitals may pool what they saw with the coordinator
dropouts = 1                    # how many hospitals may drop out during a run

[synthetic]
rows = 10_000                   # about how many records there are in all: a round figure, declared, never counted

{parties}

[simulation]                    # where a simulation finds its records; a deployment ignores this table
data = "records.parquet"        # one file, split by the rule below, or one file per party
split = "by-column"             # each value of the column below is a party
column = "hospital"
test = "test.parquet"           # records that no party has: what is learned from the dataset is tested on them
baselines = true                # compare with a constant, with own data alone, with everything pooled
grant = 3.0                     # the epsilon in each simulated hospital's ledger
"""


_PUBLISHED = """\
# The method of Fioretto and Van Hentenryck (2019) with the paper's constants, as a baseline to compare with.
# `comity plan study.toml` shows the loss that the paper claims beside the one that holds; `--all` lists every constant.

[study]
name = "{name}"
protocol = "synthetic"
schema = "schema.toml"          # the public description of a record: bounds and categories, never measured

[privacy]
unit = "record"                 # who is protected: one visit
neighbours = "add-remove"       # the paper does not say; with "replace" it is not private as claimed
epsilon = 1.0                   # the loss that the paper claims
delta = 0                       # Laplace noise and the exponential mechanism have none

[synthetic]
variant = "published"           # each hospital shares a private tree and records of it; all trees vote on labels
# Off, as in the paper. Each is an improvement of ours, or one of the paper's own comparisons:
# choice = "permute-and-flip"   # thresholds by noisy max, which is never worse at the same loss
# losses = "smooth"             # smoothed hinge and Huber's loss instead of the hinge and squares
# labelling = "own"             # PFDS(s): labels by the sharer's own tree
# consistency = false           # PFDS-: no least squares over the levels of a tree

{parties}

[simulation]                    # where a simulation finds its records; a deployment ignores this table
data = "records.parquet"
split = "by-column"             # each value of the column below is a party
column = "hospital"
test = "test.parquet"           # records that no party has: each hospital's own model is tested on them
baselines = true                # compare with a constant, own data alone (NP-Agt), everything pooled (NP-Pred)
grant = 3.0                     # the epsilon in each simulated hospital's ledger
"""


def write(folder: Path) -> None:
    parties = "\n".join(f"[parties.{name}]" for name in SIZES)
    write_hospitals(folder, SIZES, _STUDY.format(name=folder.name, parties=parties))


def write_published(folder: Path) -> None:
    parties = "\n".join(f"[parties.{name}]" for name in SIZES)
    write_hospitals(folder, SIZES, _PUBLISHED.format(name=folder.name, parties=parties))
