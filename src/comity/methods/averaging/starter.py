"""Generated hospitals of different sizes that learn one classifier of all their records."""

from __future__ import annotations

from pathlib import Path

from comity.methods.generated_hospitals import write_hospitals

SIZES = {
    "ashford": 900,
    "birkdale": 800,
    "calder": 700,
    "dunmore": 700,
    "elstow": 600,
    "farleigh": 500,
    "garston": 400,
    "hexley": 400,
    "ingram": 300,
    "jarrow": 200,
}

_STUDY = """\
# What the parties agree on. `comity plan study.toml` shows what it would release; nothing is read or spent by that.

[study]
name = "{name}"
purpose = "learn at triage which visits lead to a readmission"
protocol = "averaging"          # noisy sums of gradients, opened round by round; nobody sees a party's own sum
schema = "schema.toml"          # the public description of a record: bounds and categories are agreed, never measured

[privacy]
unit = "record"                 # who is protected: one visit
neighbours = "replace"          # the numbers of records are public; "add-remove" protects them too
epsilon = 1.0                   # the loss of each record; smaller is more private and less exact
delta = 1e-6                    # 0, or left out, for pure differential privacy: local models are averaged then
colluders = 1                   # hospitals that may pool what they saw with the coordinator
dropouts = 1                    # hospitals that may vanish in the middle

[averaging]
model = "logistic"              # or "softmax", "svm", "linear", by what the schema's target allows
scaling = "normalised"          # how a record enters the unit ball, on which the sensitivity rests

[averaging.sizes]               # how many records each hospital has: public, agreed
{sizes}

{parties}

[simulation]                    # where a simulation finds its records; a deployment ignores this table
data = "records.parquet"        # one file, split by the rule below, or one file per party
split = "by-column"             # each value of the column below is a party
column = "hospital"
test = "test.parquet"           # records that no party has, to measure the error on
baselines = true                # compare with a constant, with own data alone, with everything pooled
grant = 3.0                     # the epsilon in each simulated hospital's ledger
"""


PUBLISHED_SIZES = {"ashford": 1000, "birkdale": 1000, "calder": 1000, "dunmore": 1000, "elstow": 500}

_PUBLISHED = """\
# Averaged classifiers as Pathak, Rane and Raj (2010) have them, with their constants, for a comparison with the paper.
# NOT PRIVATE AS CLAIMED: `comity plan study.toml` shows the true loss beside the claimed one. A site refuses the study
# unless its policy says unproven = true and records_may_leave = true.

[study]
name = "{name}"
protocol = "averaging"
schema = "schema.toml"          # the public description of a record: bounds and categories are agreed, never measured

[privacy]
unit = "record"                 # who is protected: one visit
neighbours = "replace"          # the proof covers no other neighbours: noise depends on secret sizes
epsilon = 1.0                   # the loss that the paper claims
delta = 0                       # the paper's guarantee is pure
colluders = 0                   # it holds against no two participants together
dropouts = 0                    # and needs every hospital to the end

[averaging]
variant = "published"           # l2 = 1, independent Laplace noise and no constant feature, unless set below
# noise = "spherical"           # repairs Theorem 4.1: noise whose length follows the bound, which is one in L2
# l2 = 0.01                     # the paper's 1 shortens models so much that on its own data all predict one class

{parties}

[simulation]                    # where a simulation finds its records; a deployment ignores this table
data = "records.parquet"        # one file, split by the rule below, or one file per party
split = "by-column"             # each value of the column below is a party
column = "hospital"
test = "test.parquet"           # records that no party has, to measure the error on
baselines = true                # compare with a constant, with own data alone, with everything pooled
"""


def write(folder: Path) -> None:
    parties = "\n".join(f"[parties.{name}]" for name in SIZES)
    sizes = "\n".join(f"{name} = {size}" for name, size in SIZES.items())
    write_hospitals(folder, SIZES, _STUDY.format(name=folder.name, sizes=sizes, parties=parties))


def write_published(folder: Path) -> None:
    parties = "\n".join(f"[parties.{name}]" for name in PUBLISHED_SIZES)
    write_hospitals(folder, PUBLISHED_SIZES, _PUBLISHED.format(name=folder.name, parties=parties))
