"""Every key of a protocol's table changes the hash and what the study does, or is refused: none is ignored."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.errors import StudyError
from comity.methods import PROTOCOLS, method_of
from comity.methods.method import Method, Only
from comity.study.records.party_data import load_party_data
from comity.study.simulation.simulate import run_study, settings_of
from comity.study.study import Study

SCHEMA = """
[columns.age]
kind = "numeric"
low = 0
high = 100
edges = [30, 60]
[columns.dose]
kind = "numeric"
low = -1
high = 1
[columns.sex]
kind = "categorical"
values = ["f", "m"]
[target]
name = "ill"
{target}
"""
CLASSES, NUMBER = 'classes = ["no", "yes"]', "low = 0\nhigh = 10"

# By protocol and variant: the privacy and the table that a study has before a key is added, and a schema's end.
DELTA, PURE = "epsilon = 4.0\ndelta = 1e-4\n", "epsilon = 4.0\n"
RECORD, PARTY = 'unit = "record"\n', 'unit = "party"\n'
SIZES = "dimensions = 20\nrecords = 5\nsizes = {north = 15, south = 15, east = 15, west = 15}"
BASES: dict[str, tuple[str, str, str]] = {
    "averaging default gradient": ("averaging", RECORD + DELTA, "sizes = 20"),
    "averaging default average": ("averaging", RECORD + PURE, "sizes = 20"),
    "averaging published": ("averaging", RECORD + PURE + "colluders = 0\n", 'variant = "published"'),
    "softlabel default": ("softlabel", PARTY + DELTA, 'auxiliary = "public.csv"\nsizes = 20'),
    "softlabel default votes": ("softlabel", PARTY + PURE, 'auxiliary = "public.csv"\nstatistic = "votes"'),
    "softlabel published": ("softlabel", PARTY + DELTA, 'auxiliary = "public.csv"\nvariant = "published"'),
    "softlabel published private": (
        "softlabel",
        PARTY + DELTA,
        'auxiliary = "public.csv"\nvariant = "published"\nauxiliary_privacy = "private"\nauxiliary_records = 40',
    ),
    "summary default": ("summary", DELTA, SIZES),
    "summary hashes": ("summary", DELTA, SIZES + '\ndeliver = "hashes"'),
    "summary auction": ("summary", DELTA, SIZES + '\nselection = "auction"'),
    "summary published": ("summary", DELTA, SIZES + '\nvariant = "published"\nauxiliary = "public.csv"'),
    "summary weights": ("summary", DELTA, SIZES + '\ndeliver = "weights"'),
    "synthetic default": ("synthetic", DELTA, ""),
    "synthetic default pure": ("synthetic", PURE, "rows = 60"),
    "synthetic columns": ("synthetic", DELTA, 'products = "dealer"\nmax_rows = 4000'),
    "synthetic published": ("synthetic", PURE, 'variant = "published"\ndepth = 5\nleaves = 60'),
    "vertical default": ("vertical", RECORD + DELTA, 'products = "dealer"'),
    "vertical default pure": ("vertical", RECORD + PURE, 'products = "dealer"'),
    "vertical default gradient": ("vertical", RECORD + DELTA, 'products = "dealer"\nsolver = "gradient"'),
    "vertical published": ("vertical", RECORD + PURE, 'variant = "published"\nintercept = true'),
    "vertical published aligned": (
        "vertical",
        RECORD + PURE,
        'variant = "published"\nalignment = "keyed"\nintercept = true',
    ),
}

# Other values than the bases have, per key; the first that is not refused must change something.
VALUES: dict[str, list[str]] = {
    "averaging.model": ['"svm"'],
    "averaging.solver": ['"average"', '"gradient"'],
    "averaging.sizes": ["30"],
    "averaging.l2": ["0.2"],
    "averaging.rounds": ["3"],
    "averaging.clip": ["0.1"],
    "averaging.scaling": ['"normalised"'],
    "averaging.bins": ["false"],
    "averaging.intercept": ["false", "true"],
    "averaging.noise": ['"literal"', '"spherical"'],
    "averaging.key_bits": ["3072"],
    "averaging.most": ["4096"],
    "softlabel.auxiliary": ['"other.csv"'],
    "softlabel.scaling": ['"normalised"'],
    "softlabel.intercept": ["false", "true"],
    "softlabel.statistic": ['"histograms"', '"models"'],
    "softlabel.sizes": ["500", "50"],
    "softlabel.feature_map": ['"scaling"'],
    "softlabel.dimensions": ["2"],
    "softlabel.local_l2": ["10.0"],
    "softlabel.method": ['"vote"', '"avg"'],
    "softlabel.l2": ["0.3"],
    "softlabel.sensitivity": ['"paper"', '"tight"'],
    "softlabel.auxiliary_privacy": ['"private"', '"public"'],
    "softlabel.auxiliary_records": ["41"],
    "summary.sizes": ["{north = 14, south = 15, east = 15, west = 15}"],
    "summary.records": ["6"],
    "summary.deliver": ['"hashes"', '"weights"'],
    "summary.auxiliary": ['"public.csv"', '"other.csv"'],
    "summary.selection": ['"auction"', '"one-shot"'],
    "summary.missed": ["0.2"],
    "summary.ask_share": ["0.3"],
    "summary.bid_sign": ['"corrected"'],
    "summary.features": ['"paired"'],
    "summary.epsilon_v": ["0.02"],
    "summary.epsilon_first": ["0.5"],
    "summary.epsilon_l": ['"study"'],
    "summary.t_init": ["30"],
    "summary.t_sub": ["3"],
    "summary.eta": ["0.1"],
    "summary.tau": ["2"],
    "summary.auction_epsilon": ["0.25"],
    "summary.gamma": ["2.5"],
    "summary.dimensions": ["24"],
    "summary.hash_dimensions": ["20"],
    "summary.payment": ["50.0"],
    "summary.image": ["[2, 2]"],
    "synthetic.model": ['"naive-bayes"'],
    "synthetic.rows": ["500"],
    "synthetic.sizes": ["30"],
    "synthetic.bins": ["3"],
    "synthetic.edges": ['"equal"', '"measured"'],
    "synthetic.triples": ['"counted"', '"none"'],
    "synthetic.by_owner": ["true"],
    "synthetic.pooling": ['"none"'],
    "synthetic.rounds": ["2"],
    "synthetic.products": ['"rlwe"', '"dealer"'],
    "synthetic.alignment": ['"ecdh"', '"keyed"'],
    "synthetic.max_rows": ["1000"],
    "synthetic.depth": ["4"],
    "synthetic.candidates": ["3"],
    "synthetic.levels": ["3"],
    "synthetic.leaves": ["40"],
    "synthetic.labelling": ['"own"'],
    "synthetic.consistency": ["false"],
    "synthetic.choice": ['"permute-and-flip"'],
    "synthetic.learner": ['"svm"'],
    "synthetic.losses": ['"smooth"'],
    "synthetic.l2": ["0.1"],
    "synthetic.seed": ["1"],
    "vertical.sizes": ["30", "40000"],
    "vertical.label_at": ['"south"'],
    "vertical.model": ['"linear"'],
    "vertical.products": ['"rlwe"'],
    "vertical.solver": ['"quadratic"', '"gradient"'],
    "vertical.rounds": ["2"],
    "vertical.alignment": ['"ecdh"', '"keyed"'],
    "vertical.intercept": ["false"],
    "vertical.bins": ["true"],
    "vertical.party_epsilon": ["{north = 0.01}"],
    "vertical.block_epsilon": ['{north = 0.1, south = 0.1, "north+south" = 0.1}'],
    "vertical.sensitivity": ['"tight"'],
    "vertical.repair": ['"zhang"', '"floor"'],
    "vertical.max_rows": ["1000"],
}


def every_key() -> list[tuple[str, str]]:
    return [
        (base, key)
        for base, (protocol, _, _) in BASES.items()
        for key in method_of(protocol).model_fields
        if key != "variant"
    ]


def folder_of(base: str, folder: Path, own: str) -> Path:
    protocol, privacy, _ = BASES[base]
    generator = np.random.default_rng(3)
    rows = 80
    frame = pd.DataFrame({"age": generator.uniform(0, 100, rows), "dose": generator.uniform(-1, 1, rows)})
    frame["sex"] = np.where(generator.uniform(size=rows) < 0.5, "f", "m")
    frame["ill"] = np.where(frame["age"] + 30 * frame["dose"] > 50, "yes", "no")
    frame["person"] = [f"id{k}" for k in range(rows)]
    frame["at"] = np.repeat(["north", "south", "east", "west"], rows // 4)
    frame.to_csv(folder / "records.csv", index=False)
    public = frame[["age", "dose", "sex"]]
    public.iloc[:40].to_csv(folder / "public.csv", index=False)
    public.iloc[20:60].to_csv(folder / "other.csv", index=False)
    by_columns = protocol == "vertical" or "columns" in base
    aligned = '[identifier]\nname = "person"\n' if by_columns and "alignment" in own else ""
    (folder / "schema.toml").write_text(SCHEMA.format(target=CLASSES) + aligned)
    if by_columns:
        parties = '[parties.north]\ncolumns = ["age", "ill"]\n[parties.south]\ncolumns = ["dose", "sex"]\n'
        split = 'split = "by-features"'
    else:
        roles = {name: "consumer" if name == "west" else "owner" for name in ("north", "south", "east", "west")}
        role = 'role = "{}"\n' if protocol == "summary" else ""
        parties = "".join(f"[parties.{name}]\n{role.format(played)}" for name, played in roles.items())
        split = 'split = "by-column"\ncolumn = "at"'
    (folder / "study.toml").write_text(
        f'[study]\nname = "keys"\nprotocol = "{protocol}"\nschema = "schema.toml"\n[privacy]\n{privacy}'
        f'[{protocol}]\n{own}\n{parties}[simulation]\ndata = "records.csv"\n{split}\n'
    )
    return folder / "study.toml"


def without(own: str, key: str) -> str:
    return "\n".join(line for line in own.splitlines() if not line.startswith(f"{key} ="))


def planned(study: Study) -> str:
    """What people read in the plan, and every form and bound that both ends check."""
    return json.dumps(study.plan().as_json(), sort_keys=True) + repr(study.protocol.declare(study.consortium).releases)


def entering(study: Study) -> str:
    """The records as they enter the method."""
    return repr([records.features.tobytes() for records in load_party_data(study).parties.values()])


def done(study: Study, caplog: pytest.LogCaptureFixture) -> str:
    """Everything that a run gives away: released values, what it is compared with, what its owners are told."""
    caplog.clear()
    outcome = run_study(study, seed=5)
    released = {name: np.asarray(value).tobytes().hex() for name, value in sorted(outcome.released.items())}
    return json.dumps([released, repr(outcome.baselines), [record.getMessage() for record in caplog.records]])


# Assertions about the schema, and ceilings: a value that does not hold is refused, and one that holds changes nothing.
ASSERTED = {"vertical.label_at", "vertical.model", "vertical.party_epsilon"}


@pytest.mark.parametrize(("base", "key"), every_key(), ids=lambda part: str(part).replace(" ", "-"))
def test_a_key_does_something_or_is_refused(
    base: Any, key: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    protocol, _, own = BASES[base]
    dotted = f"{protocol}.{key}"
    before = folder_of(base, tmp_path, own)
    study = Study.load(before)
    hashed, plan = study.hash, planned(study)
    refused = 0
    written = {value: tomllib.loads(f"value = {value}")["value"] for value in VALUES[dotted]}
    values = [value for value, read in written.items() if read != getattr(study.method, key)]
    for value in values:
        path = folder_of(base, tmp_path, f"{without(own, key)}\n{key} = {value}")
        try:
            changed = Study.load(path)
            after = planned(changed)
        except StudyError as error:
            refused += 1
            assert error.key and str(path) in str(error), error
            if key not in type(study.method).model_fields or key not in study.method.own_keys(study.setting):
                owners = (f"{protocol}.", "parties that hold ")
                assert error.key == dotted, error
                assert any(f"{dotted} belongs to {one}" in str(error) for one in owners), error
            continue
        assert key in changed.method.own_keys(changed.setting), f"{dotted} is taken and belongs to nothing"
        assert changed.hash != hashed, dotted
        if after == plan:
            second = tmp_path / "first"
            second.mkdir()
            same = Study.load(folder_of(base, second, own))
            # The hash decides who is held out and how noise is seeded: both studies must run under the same one.
            object.__setattr__(same, "hash", changed.hash)
            seen = entering(changed) != entering(same) or done(changed, caplog) != done(same, caplog)
            assert seen, f"{dotted} = {value} changes the hash and nothing else"
        return
    assert refused == len(values)
    if dotted in ASSERTED:
        return
    assert key not in study.method.own_keys(study.setting) or base in EXPECTED_REFUSALS.get(dotted, ()), dotted


# Keys that a base has, whose other values need another key beside them.
EXPECTED_REFUSALS = {
    "softlabel.auxiliary_privacy": ("softlabel published", "softlabel published private"),
    "softlabel.auxiliary_records": ("softlabel published private",),
    "softlabel.feature_map": ("softlabel default",),
    "summary.selection": ("summary hashes", "summary weights"),
    "synthetic.rounds": ("synthetic default pure",),
    "synthetic.sizes": ("synthetic default pure",),
    "vertical.block_epsilon": ("vertical default", "vertical default gradient"),
    "vertical.products": ("vertical default gradient",),
}


def test_every_field_has_a_value_to_try_and_every_condition_names_fields() -> None:
    for name in PROTOCOLS:
        kind: type[Method] = method_of(name)
        assert kind.table == name
        for key, field in kind.model_fields.items():
            assert key == "variant" or f"{name}.{key}" in VALUES
            for only in (one for one in field.metadata if isinstance(one, Only)):
                assert set(only.needs) <= {*kind.model_fields, *kind.facts}
                assert all(set(only.needs[fact]) <= set(kind.facts[fact]) for fact in set(only.needs) & set(kind.facts))


@pytest.mark.parametrize("base", BASES)
def test_defaults_and_settings_show_the_keys_of_the_variant_alone(base: Any, tmp_path: Path) -> None:
    protocol, _, own = BASES[base]
    study = Study.load(folder_of(base, tmp_path, own))
    shown: dict[str, Any] = {**study.defaults(), **settings_of(study)}
    mine = {key.partition(".")[2] for key in shown if key.startswith(f"{protocol}.")}
    assert mine == set(study.method.own_keys(study.setting))
    assert ("key_bits" in mine) == (base == "averaging published")
    assert ("statistic" in mine) == base.startswith("softlabel default")
    assert ("intercept" in mine) == (not base.startswith(("synthetic", "summary")))
    assert ("repair" in mine) == base.startswith("vertical published")
