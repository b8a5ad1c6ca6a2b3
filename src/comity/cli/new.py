"""`comity new`: a folder with a study, its schema and generated data, which runs as it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from comity.cli.options import AsJson
from comity.cli.output import show

CLINICS, VISITS, PUBLIC, TESTED = 300, 25, 500, 2000

_STUDY = """\
# What the parties agree on. `comity plan study.toml` shows what it would release; nothing is read or spent by that.

[study]
name = "{name}"
protocol = "softlabel"          # parties learn locally; a trusted coordinator combines what they learnt and adds noise
schema = "schema.toml"          # the public description of a record: bounds and categories are agreed, never measured

[privacy]
unit = "party"                  # who is protected: a whole clinic, with all of its records
neighbours = "replace"          # against whom: whoever compares with the same study after one clinic was replaced
epsilon = 1.0                   # the loss per clinic; smaller is more private and less exact
delta = 1e-6                    # 0, or left out, for pure differential privacy

[softlabel]
variant = "published"           # the method of Hamm, Cao and Belkin (2016)
method = "avg"                  # what is combined: "avg" local models, or "soft" or "vote" labels of public records
auxiliary = "public.parquet"    # public, unlabelled records; part of the study's hash
rows = "normalised"             # how a record enters the unit ball, on which the sensitivity rests
l2 = 0.003                      # regularisation: less of it fits better and needs more noise

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


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The folder to make; also the study's name.", show_default=False)
    ],
    protocol: Annotated[str, typer.Option(help="The method.")] = "softlabel",
    as_json: AsJson = False,
) -> None:
    """Write a study that runs as it is: study.toml, schema.toml and generated records of clinics.

    Example: comity new triage --protocol softlabel
    """
    from comity.errors import BadInput
    from comity.protocols import PROTOCOLS

    if protocol not in PROTOCOLS:
        raise typer.BadParameter(f"--protocol must be one of {', '.join(PROTOCOLS)}, found {protocol!r}.")
    folder = Path(name)
    if not re.fullmatch(r"[A-Za-z0-9._ -]{1,80}", folder.name):
        raise typer.BadParameter(
            f"a study's name has 1 to 80 letters, digits, spaces, . _ or -; found {folder.name!r}."
        )
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise BadInput(f"{folder}: is there already, and nothing is overwritten; choose another name") from None
    except OSError as error:
        raise BadInput(f"{folder}: can't be made ({error.strerror}); choose another place") from error
    _softlabel(folder)
    files = sorted(path.name for path in folder.iterdir())
    text = (
        f"{folder}: {', '.join(files)}\n  next: cd {folder} && comity plan study.toml && comity run study.toml --seed 7"
    )
    show(text, {"folder": str(folder), "files": files}, as_json=as_json)


def _softlabel(folder: Path) -> None:
    import pandas as pd

    from comity.data import clinic_schema, clinics, public_cohort

    visits = clinics(CLINICS, VISITS, "comity new")
    together = pd.concat([table.assign(clinic=clinic) for clinic, table in visits.items()], ignore_index=True)
    # Other clinics of the same kind, so that the error is that of a newcomer who uses the model.
    tested = pd.concat(clinics(TESTED // 100, 100, "comity new, test").values(), ignore_index=True)
    together.drop(columns="disposition").to_parquet(folder / "records.parquet", index=False)
    tested.drop(columns="disposition").to_parquet(folder / "test.parquet", index=False)
    public_cohort(PUBLIC, "comity new, public").to_parquet(folder / "public.parquet", index=False)
    (folder / "schema.toml").write_text(clinic_schema("readmitted").to_toml(), encoding="utf-8")
    (folder / "study.toml").write_text(_STUDY.format(name=folder.name, clinics=CLINICS), encoding="utf-8")
