"""A summary's study file: the width by public figures alone, roles and sizes, and what a wrong one is told."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from comity.data import Bounded, Categorical, Date, Encoding, Numeric, Ordinal, Schema
from comity.errors import SchemaError, StudyError
from comity.methods.summary.features import gamma_of_records, gamma_of_schema
from comity.methods.summary.starter import write
from comity.study.study import Study
from tests.synthetic.consortia import make_frame, make_schema


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("starter") / "archives"
    made.mkdir()
    write(made)
    return made


def test_the_width_is_that_of_the_auxiliary_records_and_in_the_hash(folder: Any) -> None:
    study = Study.load(folder / "study.toml")
    public = cast(Any, study.protocol).encoding.encode_features(pd.read_parquet(folder / "public.parquet"))
    assert cast(Any, study.protocol).gamma == pytest.approx(gamma_of_records(public))
    assert "by 150 public records" in study.plan().as_text()
    given = Study.load(folder / "study.toml", overrides={"summary.gamma": 0.4})
    assert cast(Any, given.protocol).gamma == 0.4 and given.hash != study.hash


def test_no_private_file_is_opened_for_a_plan(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read = pd.read_parquet
    opened: Any = []
    monkeypatch.setattr(pd, "read_parquet", lambda path, **more: opened.append(str(path)) or read(path, **more))
    Study.load(folder / "study.toml").plan()
    assert not [path for path in opened if "records.parquet" in path]


def test_without_public_records_the_schema_gives_the_width() -> None:
    small = Schema((Numeric("x", 0, 10), Categorical("c", ("a", "b")), Ordinal("o", ("l", "m", "h"))))
    encoding = Encoding(small, scaling="unit")
    assert gamma_of_schema(encoding) == pytest.approx(1 / (1 / 6 + 1 + 1 / 6))
    chance = np.random.default_rng(0)
    rows = np.stack([chance.random(4000), *np.eye(2)[chance.integers(0, 2, 4000)].T, chance.random(4000)], axis=1)
    apart = ((rows[:2000] - rows[2000:]) ** 2).sum(axis=1).mean()
    assert gamma_of_schema(encoding) == pytest.approx(1 / apart, rel=0.05)


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        ({"parties.newtown.role": "owner"}, "parties"),
        ({"parties.newtown.role": "buyer"}, "parties.newtown.role"),
        ({"privacy.delta": 0}, "privacy.delta"),
        ({"privacy.neighbours": "add-remove"}, "privacy.neighbours"),
        ({"summary.sizes": {"ashford": 3}}, "summary.sizes"),
        ({"summary.records": 1_000_000}, "summary.records"),
        ({"summary.image": [3, 3]}, "summary.image"),
        ({"summary.hash_dimensions": 20}, "summary.hash_dimensions"),
        ({"summary.gamma": 0}, "summary.gamma"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(folder: Any, overrides: Any, key: str) -> None:
    with pytest.raises(StudyError) as refused:
        Study.load(folder / "study.toml", overrides=overrides).plan()
    assert refused.value.key == key and str(folder) in str(refused.value)


@pytest.mark.parametrize("target", [None, Bounded("cost", 0.0, 200.0)])
@pytest.mark.parametrize("scaling", ["unit", "symmetric"])
def test_records_come_back_from_their_rows(scaling: Any, target: Any) -> None:
    own = make_schema(target)
    encoding = Encoding(own, scaling=scaling)
    table = make_frame(60, 3, target)
    first = encoding.encode(table).records
    back = encoding.decode(first.features, first.labels)
    again = encoding.encode(back).records
    assert np.allclose(again.features, first.features, atol=1e-9)
    assert back["age"].tolist() == table["age"].tolist()
    assert back["income"].isna().tolist() == table["income"].isna().tolist()
    assert back["stage"].tolist() == table["stage"].tolist()
    assert pd.to_datetime(back["seen"]).tolist() == pd.to_datetime(table["seen"]).tolist()
    if target is not None:
        assert back[target.name].tolist() == pytest.approx(table[target.name].tolist())


def test_days_come_back_in_their_steps() -> None:
    own = Schema((Date("seen", date(2020, 1, 15), date(2023, 12, 31), step="month"),))
    encoding = Encoding(own, scaling="unit")
    table = pd.DataFrame({"seen": pd.to_datetime(["2020-01-20", "2021-05-09", "2023-12-31"])})
    rows = encoding.encode(table).records.features
    back = encoding.decode(rows)
    assert [str(day)[:10] for day in back["seen"]] == ["2020-01-15", "2021-05-01", "2023-12-01"]
    assert np.allclose(encoding.encode(back).records.features, rows)


def test_rows_that_were_rescaled_are_not_read_back() -> None:
    with pytest.raises(SchemaError):
        Encoding(make_schema(), rows="scaled").decode(np.zeros((1, 20)))
