"""Which records a simulation holds out: decided by the data and `simulation.split_seed`, never by the study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comity.data import Records, clinic_schema, clinics
from comity.errors import StudyError
from comity.study.records.party_data import PartyData, load_party_data
from comity.study.records.splitting import holdout_people, holdout_rows
from comity.study.simulation.simulate import run_study
from comity.study.study import Study
from tests.support.vertical import make_people, make_schema

RECORDS = 300
BY_ROWS = """
[study]
name = "small"
protocol = "averaging"
schema = "schema.toml"
[privacy]
unit = "record"
epsilon = 1.0
delta = 1e-6
[averaging]
sizes = 100
[parties]
count = 3
[simulation]
data = "all.csv"
"""
BY_COLUMNS = """
[study]
name = "sickness"
protocol = "vertical"
schema = "schema.toml"
[privacy]
unit = "record"
epsilon = 2.0
delta = 1e-5
[vertical]
products = "dealer"
max_rows = 5000
[parties.north]
columns = ["age", "sick"]
[parties.south]
columns = ["place", "dose", "sex"]
[simulation]
"""
ONE_FILE = 'data = "people.csv"\nsplit = "by-features"\n'
OWN_FILES = 'data = {north = "north.csv", south = "south.csv"}\n'


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    tables = clinics(3, RECORDS // 3, "holdout")
    for name, table in tables.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    pd.concat([table.assign(clinic=name) for name, table in tables.items()]).to_csv(tmp_path / "all.csv", index=False)
    (tmp_path / "schema.toml").write_text(clinic_schema("readmitted").to_toml())
    return tmp_path


def by_rows(folder: Path, **overrides: Any) -> PartyData:
    return load_party_data(Study.parse(BY_ROWS, folder=folder, overrides=overrides))


def ids(records: Any) -> list[str]:
    assert isinstance(records, Records) and records.ids is not None
    return [one.strip() for one in records.ids]


def kept(party_data: PartyData) -> set[str]:
    return {one for records in party_data.parties.values() for one in ids(records)}


@pytest.mark.parametrize(
    "changed",
    [
        {"privacy.epsilon": 1.01},
        {"privacy.delta": 1e-7},
        {"privacy.colluders": 2},
        {"study.name": "another"},
        {"averaging.rows": "clipped"},
        {"averaging.solver": "average"},
        {"averaging.sizes": 90},
        {"parties.count": 7, "averaging.sizes": 40},
        {"simulation.split": "by-sizes", "simulation.sizes": [0.2, 0.3, 0.5]},
        {"simulation.baselines": False},
    ],
    ids=lambda changed: "+".join(changed),
)
def test_the_test_set_is_the_same_whatever_the_settings(rows: Path, changed: dict[str, Any]) -> None:
    before, after = by_rows(rows), by_rows(rows, **changed)
    assert kept(before) == kept(after) and len(kept(before)) == 0.8 * RECORDS
    assert ids(before.test) == ids(after.test) and len(ids(before.test)) == 0.2 * RECORDS
    assert not kept(after) & set(ids(after.test))


def test_parties_get_the_same_records_whatever_the_settings(rows: Path) -> None:
    before, after = by_rows(rows), by_rows(rows, **{"privacy.epsilon": 1.01, "study.name": "another"})
    assert [ids(one) for one in before.parties.values()] == [ids(one) for one in after.parties.values()]


def test_another_split_seed_is_another_test_set_and_another_deal(rows: Path) -> None:
    zero, same, one = by_rows(rows), *(by_rows(rows, **{"simulation.split_seed": seed}) for seed in (0, 1))
    assert ids(zero.test) == ids(same.test) != ids(one.test)
    assert 0 < len(set(ids(zero.test)) & set(ids(one.test))) < 0.5 * len(ids(zero.test))


def test_a_larger_share_holds_out_the_same_records_and_more(rows: Path) -> None:
    small, large = by_rows(rows, **{"simulation.holdout": 0.1}), by_rows(rows, **{"simulation.holdout": 0.3})
    assert set(ids(small.test)) < set(ids(large.test)) and len(ids(large.test)) == 90


def test_what_is_held_out_is_taken_from_every_party_alike(rows: Path) -> None:
    for count, sizes in [(3, {80}), (7, {34, 35}), (60, {4})]:
        found = by_rows(rows, **{"parties.count": count, "averaging.sizes": 5})
        assert {len(records) for records in found.parties.values()} == sizes
    named = {"simulation.split": "by-sizes", "simulation.sizes": [30, 90, 180]}
    assert [len(records) for records in by_rows(rows, **named).parties.values()] == [24, 72, 144]


def test_as_many_parties_as_records_still_have_a_test_set(rows: Path) -> None:
    found = by_rows(rows, **{"parties.count": RECORDS, "averaging.sizes": 1})
    assert sorted(len(records) for records in found.parties.values()) == [0] * 60 + [1] * 240
    assert len(ids(found.test)) == 60


def test_a_column_and_own_files_hold_out_the_same_records_of_each_owner(rows: Path) -> None:
    names = [f"clinic-{number:02}" for number in (1, 2, 3)]
    column = by_rows(rows, **{"simulation.split": "by-column", "simulation.column": "clinic"})
    files = by_rows(rows, **{"simulation.data": {name: f"{name}.csv" for name in names}})
    assert set(ids(column.test)) == set(ids(files.test)) and len(ids(files.test)) == 60
    for name in names:
        assert ids(column.parties[name]) == ids(files.parties[name]) and len(column.parties[name]) == 80


@pytest.mark.parametrize("share", [0.2, 0.3])
def test_the_expected_number_of_rows_is_the_share(share: float) -> None:
    chosen = [len(holdout_rows(1, share=share, split_seed=seed)) for seed in range(2000)]
    assert set(chosen) == {0, 1} and abs(np.mean(chosen) - share) < 0.05
    assert list(holdout_rows(10, share=0.5, split_seed=0)) != list(holdout_rows(10, share=0.5, split_seed=0, group="a"))


@pytest.fixture
def columns(tmp_path: Path) -> Path:
    """Two owners' files of overlapping people, in other orders, beside the table of those that both have."""
    frame = make_people(1200)
    (tmp_path / "schema.toml").write_text(make_schema(identifier=True).to_toml())
    # An alignment ignores blanks around an identifier.
    frame[["person", "age", "sick"]].assign(person=" " + frame["person"]).iloc[:1100].to_csv(
        tmp_path / "north.csv", index=False
    )
    south = frame[["person", "place", "dose", "sex"]].iloc[100:].sample(frac=1, random_state=1)
    south.to_csv(tmp_path / "south.csv", index=False)
    frame.iloc[100:1100].to_csv(tmp_path / "people.csv", index=False)
    return tmp_path


def by_columns(folder: Path, data: str = OWN_FILES, overrides: Any = None) -> Study:
    return Study.parse(BY_COLUMNS + data, folder=folder, overrides=overrides)


def test_files_of_different_columns_hold_out_people_that_all_owners_have(columns: Path) -> None:
    found = load_party_data(by_columns(columns, overrides={"simulation.holdout": 0.25}))
    tested, both = set(ids(found.test)), {f"id{number}" for number in range(100, 1100)}
    assert len(tested) == 250 and tested < both
    north, south = (set(ids(found.parties[name])) for name in ("north", "south"))
    assert not tested & north and not tested & south and len(north) == len(south) == 850
    assert north & south == both - tested


def test_one_file_and_a_file_for_each_owner_have_the_same_test_people(columns: Path) -> None:
    apart, together = load_party_data(by_columns(columns)), load_party_data(by_columns(columns, ONE_FILE))
    assert set(ids(apart.test)) == set(ids(together.test))
    assert apart.test is not None and together.test is not None
    orders = [np.argsort(ids(one)) for one in (apart.test, together.test)]
    np.testing.assert_array_equal(apart.test.features[orders[0]], together.test.features[orders[1]])
    np.testing.assert_array_equal(np.asarray(apart.test.labels)[orders[0]], np.asarray(together.test.labels)[orders[1]])


def test_files_of_different_columns_have_a_quality_figure_and_baselines(columns: Path) -> None:
    outcomes = [
        run_study(by_columns(columns, overrides={"privacy.epsilon": epsilon}), seed=1) for epsilon in (2.0, 2.02)
    ]
    for found in outcomes:
        alone, pooled = found.baseline("own data"), found.baseline("pooled")
        assert found.error is not None and alone is not None and pooled is not None
        assert pooled.error < alone.error and found.error < 0.4
    # Fits without noise on the same records, scored on the same records.
    assert outcomes[0].assessment.baselines == outcomes[1].assessment.baselines


def test_a_test_file_is_used_instead_of_a_holdout(columns: Path) -> None:
    make_people(50, seed=9).to_csv(columns / "test.csv", index=False)
    found = load_party_data(by_columns(columns, OWN_FILES + 'test = "test.csv"\n'))
    assert found.test is not None and len(found.test) == 50
    assert [len(records) for records in found.parties.values()] == [1100, 1100]


def test_rows_in_one_order_hold_out_the_same_rows_of_every_file(columns: Path) -> None:
    (columns / "schema.toml").write_text(make_schema().to_toml())
    frame = make_people(400)
    frame[["age", "sick"]].to_csv(columns / "north.csv", index=False)
    frame[["place", "dose", "sex"]].to_csv(columns / "south.csv", index=False)
    frame.to_csv(columns / "people.csv", index=False)
    apart, together = load_party_data(by_columns(columns)), load_party_data(by_columns(columns, ONE_FILE))
    assert apart.test is not None and together.test is not None and len(apart.test) == 80
    np.testing.assert_array_equal(apart.test.features, together.test.features)
    for name, records in apart.parties.items():
        assert isinstance(records, Records) and len(records) == 320
        np.testing.assert_array_equal(records.features, together.parties[name].features)


def test_too_few_people_to_hold_out_are_refused_with_the_remedy(columns: Path) -> None:
    for name in ("north", "south"):
        table = pd.read_csv(columns / f"{name}.csv")
        table[table["person"].str.strip().isin(["id100", "id101"])].to_csv(columns / f"{name}.csv", index=False)
    with pytest.raises(StudyError, match=r"too few records to hold a share of 0\.01 back; give simulation\.test"):
        load_party_data(by_columns(columns, overrides={"simulation.holdout": 0.01}))


def test_a_person_is_held_out_by_the_identifier_alone() -> None:
    everyone = [f"id{number}" for number in range(100)]
    chosen = holdout_people(everyone, share=0.2, split_seed=0)
    assert len(chosen) == 20 and chosen == holdout_people(everyone[::-1], share=0.2, split_seed=0)
    assert chosen != holdout_people(everyone, share=0.2, split_seed=1)
    # Who else there is changes how many are held out, not who comes first.
    assert holdout_people(everyone[:50], share=0.2, split_seed=0) < holdout_people(everyone, share=0.5, split_seed=0)
