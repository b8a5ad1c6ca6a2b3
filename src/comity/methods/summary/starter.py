"""Archives hold pictures of all digits; a consumer buys some that look like its own even ones."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from comity.data.public.digits import digit_pictures, digit_schema

EVEN, ODD = (0, 2, 4, 6, 8), (1, 3, 5, 7, 9)
OWNERS = {"ashford": (2000, 1500), "birkdale": (2500, 500), "calder": (2500, 500), "dunmore": (2500, 500)}
"""The numbers of odd and of even pictures that each owner holds."""
CONSUMER, WISHED, PUBLIC, TESTED = "newtown", 500, 150, 1000

_STUDY = """\
# What the parties agree on. `comity plan study.toml` shows what it would release; it reads and spends nothing.

[study]
name = "{name}"
purpose = "buy pictures of digits that resemble those of one archive"
protocol = "summary"            # records of many owners, chosen so that together they look like the consumer's
schema = "schema.toml"          # the public description of a record: bounds and classes, never measured

[privacy]
unit = "record"                 # who is protected: one record, against the other owners
neighbours = "replace"          # how many records each party has is public
epsilon = 1.0                   # the loss of each record of owners and of the consumer, each in its own ledger
delta = 1e-5
colluders = 1                   # how many owners may pool what they saw

[summary]
records = 100                   # how many are bought in all
deliver = "records"             # real records leave, without differential privacy towards curator and consumer; a
                                # site's policy must allow it (records_may_leave = true). Or "hashes", or "weights"
auxiliary = "public.parquet"    # public records, for the width of the kernel alone; part of the study's hash
payment = 100.0                 # the sum that the payout table divides
image = [8, 8]                  # a record is a picture: the page shows chosen ones

[summary.sizes]                 # records of each party: public, and a cap on what an owner is asked for
{sizes}

{parties}

[simulation]                    # where a simulation finds its records; a deployment ignores this table
data = "records.parquet"        # one file, split by the rule below, or one file per party
split = "by-column"             # each value of the column below is a party
column = "at"
test = "test.parquet"           # records like the consumer's that no party has
baselines = true                # compare with uniform, greedy and weighted choices
grant = 3.0                     # the epsilon in each simulated ledger
"""


_PUBLISHED = """\
# The auction of Sarpatwar et al. (2019) with the paper's steps and constants, to compare with. It is not private as
# claimed: `comity plan study.toml` shows what the paper claims beside what holds.

[study]
name = "{name}"
protocol = "summary"            # records of many owners, chosen so that together they look like the consumer's
schema = "schema.toml"          # the public description of a record: bounds and classes, never measured

[privacy]
unit = "record"                 # who is protected: one record, against the other owners
neighbours = "replace"          # how many records each party has is public
epsilon = 1.5                   # above what the paper claims for its constants at this delta; the noise is by these
delta = 0.01                    # the paper's, for the consumer's records

[summary]
variant = "published"
records = 100                   # how many are bought in all: the paper's p
auxiliary = "public.parquet"    # about 150 public records that the summary starts with
payment = 100.0                 # the sum that the payout table divides by winning bids
image = [8, 8]                  # a record is a picture: the page shows chosen ones
# The paper's constants are the defaults: gamma, dimensions, epsilon_v, epsilon_first, epsilon_l, t_init, t_sub, eta.
# Repairs:
# bid_sign = "corrected"        # bids by the marginal gain; as printed they prefer records unlike the consumer's
# features = "paired"           # cosines and sines, whose products vary less
# gamma = "auto"                # the kernel's width from the public records
# deliver = "hashes"            # the curator receives hashes alone (the paper's less trusted curator); without image

[summary.sizes]                 # records of each party: public
{sizes}

{parties}

[simulation]                    # where a simulation finds its records; a deployment ignores this table
data = "records.parquet"        # one file, split by the rule below, or one file per party
split = "by-column"             # each value of the column below is a party
column = "at"
test = "test.parquet"           # records like the consumer's that no party has
baselines = true                # compare with uniform, greedy and weighted choices
"""


def write(folder: Path) -> None:
    _write(folder, _STUDY)


def write_published(folder: Path) -> None:
    _write(folder, _PUBLISHED)


def _write(folder: Path, text: str) -> None:
    tables = []
    for name, (odd, even) in OWNERS.items():
        label = f"comity new, {name}"
        tables.append(digit_pictures(odd, f"{label} odd", digits=ODD).assign(at=name))
        tables.append(digit_pictures(even, f"{label} even", digits=EVEN).assign(at=name))
    tables.append(digit_pictures(WISHED, "comity new, consumer", digits=EVEN).assign(at=CONSUMER))
    pd.concat(tables, ignore_index=True).to_parquet(folder / "records.parquet", index=False)
    tested = digit_pictures(TESTED, "comity new, test", digits=EVEN, tested=True)
    tested.to_parquet(folder / "test.parquet", index=False)
    public = digit_pictures(PUBLIC, "comity new, public").drop(columns="digit")
    public.to_parquet(folder / "public.parquet", index=False)
    (folder / "schema.toml").write_text(digit_schema().to_toml(), encoding="utf-8")
    sizes = {**{name: sum(counts) for name, counts in OWNERS.items()}, CONSUMER: WISHED}
    study = text.format(
        name=folder.name,
        sizes="\n".join(f"{name} = {size}" for name, size in sizes.items()),
        parties="\n".join(
            f'[parties.{name}]\nrole = "{"consumer" if name == CONSUMER else "owner"}"' for name in sizes
        ),
    )
    (folder / "study.toml").write_text(study, encoding="utf-8")
