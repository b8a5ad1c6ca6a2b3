"""Every method as a small study of a few organisations: the study file that is simulated and deployed, and what each
organisation holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from comity.data import Schema, clinic_schema, clinics, public_cohort
from comity.entropy import Stream
from comity.privacy.unit import Neighbours, Unit

NAMES = ("north", "south", "east", "west")
RECORDS = 100
PATIENTS = 120
_HELD = {
    "north": ("age", "sex", "arrival", "readmitted"),
    "south": ("ward", "triage", "heart_rate", "systolic"),
    "east": ("temperature", "saturation", "lactate"),
}
# Angles of rounds are rounded after a secret turn: each response of a record by 2^-12 and less. With a dealer responses
# are rounded at random too, by a deviation of 0.08 at most: 0.8 in a sum over a hundred records.
_OF_ROUNDS = ("weights", "interval", "gradient", "model")


@dataclass(frozen=True)
class Method:
    """`table` is the method's own part of the study, with the parties; `summed` the release whose sum is compared with
    its declared noise; `chance` are releases that an owner's own secret chance decides, whatever the noise, and
    `rounded` those of which it decides the rounding, by up to `rounding`."""

    table: str
    parties: tuple[str, ...] = NAMES[:3]
    unit: Unit = Unit.RECORD
    neighbours: Neighbours = Neighbours.REPLACE
    columns: Mapping[str, tuple[str, ...]] | None = None
    public: bool = False
    identified: bool = False
    delta: float = 1e-6
    colluders: int = 1
    summed: str = ""
    chance: tuple[str, ...] = ()
    rounded: tuple[str, ...] = ()
    rounding: float = 0.02

    @property
    def protocol(self) -> str:
        return self.table.partition("]")[0].lstrip("[")


def _columns(*parties: str) -> str:
    return "".join(f"[parties.{name}]\ncolumns = {list(_HELD[name])}\n" for name in parties)


def _owners(parties: tuple[str, ...]) -> str:
    return "".join(f"[parties.{name}]\n" for name in parties)


def _summary(deliver: str) -> str:
    sizes = ", ".join(f"{name} = {RECORDS}" for name in NAMES)
    roles = "".join(f'[parties.{name}]\nrole = "{"consumer" if name == NAMES[-1] else "owner"}"\n' for name in NAMES)
    keys = f'auxiliary = "public.parquet"\nrecords = 10\ndimensions = 20\nsizes = {{ {sizes} }}\ndeliver = "{deliver}"'
    return f"[summary]\n{keys}\n{roles}"


METHODS: dict[str, Method] = {
    "averaging": Method(
        f'[averaging]\nmodel = "logistic"\nrows = "normalised"\nrounds = 2\nsizes = {RECORDS}\n' + _owners(NAMES[:3]),
        summed="gradient",
    ),
    "vertical-dealer": Method(
        '[vertical]\nproducts = "dealer"\nrounds = 2\nmax_rows = 256\n' + _columns("north", "south", "east"),
        columns=_HELD,
        identified=True,
        summed="moments",
        rounded=_OF_ROUNDS,
        rounding=1.0,
    ),
    "vertical-rlwe": Method(
        '[vertical]\nalignment = "ecdh"\nrounds = 2\nmax_rows = 256\n' + _columns("north", "south", "east"),
        columns=_HELD,
        identified=True,
        summed="moments",
        rounded=_OF_ROUNDS,
    ),
    "softlabel": Method(
        f'[softlabel]\nauxiliary = "public.parquet"\nscaling = "normalised"\nstatistic = "votes"\n'
        f"sizes = {RECORDS}\n" + _owners(NAMES),
        parties=NAMES,
        unit=Unit.PARTY,
        public=True,
        summed="votes",
    ),
    "synthetic-rows": Method(
        f"[synthetic]\nrows = {3 * RECORDS}\n" + _owners(NAMES[:3]),
        neighbours=Neighbours.ADD_REMOVE,
        summed="counts",
    ),
    "synthetic-columns": Method(
        '[synthetic]\nproducts = "dealer"\nmodel = "naive-bayes"\nrows_at_most = 256\n'
        + _columns("north", "south", "east"),
        columns=_HELD,
        identified=True,
        summed="counts",
    ),
    "synthetic-published": Method(
        # With all of the paper's constants.
        '[synthetic]\nvariant = "published"\n' + _owners(NAMES[:3]),
        neighbours=Neighbours.ADD_REMOVE,
        delta=0.0,
    ),
    "summary-weights": Method(_summary("weights"), parties=NAMES, public=True, summed="moments"),
    "summary-records": Method(
        _summary("records"),
        parties=NAMES,
        public=True,
        chance=("summary", "chosen"),
        summed="moments",
    ),
}


def schema_of(method: Method) -> Schema:
    whole = clinic_schema("readmitted")
    if method.columns is not None:
        held = {name for columns in method.columns.values() for name in columns}
        whole = replace(whole, columns=tuple(column for column in whole.columns if column.name in held))
    return whole if method.identified else replace(whole, identifier=None)


def study_text(name: str, epsilon: float) -> str:
    """The study without the keys of its participants."""
    method = METHODS[name]
    delta = f"delta = {method.delta}\n" if method.delta else ""
    data = ", ".join(f'{party} = "{party}.parquet"' for party in method.parties)
    return f"""\
[study]
name = "{name}"
protocol = "{method.protocol}"
schema = "schema.toml"

[privacy]
unit = "{method.unit.value}"
neighbours = "{method.neighbours.value}"
epsilon = {epsilon}
{delta}colluders = {method.colluders}

{method.table}
[simulation]
data = {{ {data} }}
test = "test.parquet"
baselines = false
grant = 1000.0

"""


def write_public(name: str, folder: Path) -> None:
    """What the study names, beside it."""
    method = METHODS[name]
    (folder / "schema.toml").write_text(schema_of(method).to_toml())
    if method.public:
        public_cohort(60, "deployed").to_parquet(folder / "public.parquet", index=False)


def records_of(name: str) -> dict[str, pd.DataFrame]:
    """What each party holds, and `test`: records that none of them has."""
    method = METHODS[name]
    people = _visits(PATIENTS, f"{name}, people")
    unused = ["disposition"] if method.identified else ["disposition", "patient"]
    found = {"test": _visits(40, f"{name}, test").drop(columns=unused)}
    for place, party in enumerate(method.parties):
        if method.columns is None:
            found[party] = _visits(RECORDS, f"{name}, {party}").drop(columns=unused)
        else:
            # Each knows some people that others do not, in an order of its own.
            order = Stream.public("deployed", party).permutation(len(people))
            kept = order[np.arange(len(order)) % 10 != place]
            found[party] = people.iloc[kept][["patient", *method.columns[party]]]
    return found


def _visits(number: int, label: str) -> pd.DataFrame:
    visits = pd.concat(clinics(-(-number // 20), 20, label).values(), ignore_index=True).iloc[:number]
    return visits.assign(patient=[f"P{place:05d}" for place in range(number)])
