"""A run goes on with the records that it began with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.data import Records
from comity.errors import Refused, StudyError
from comity.learn.local_models import Predictions
from comity.study.records.gather import gather
from comity.study.records.material import Material
from comity.study.records.same_records import NAME, digests, require_same
from comity.study.simulation.run import run_study
from comity.study.study import Study
from tests.report.small_studies import small_study


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return small_study("softlabel published method=avg", tmp_path)


@pytest.fixture
def material(study: Any) -> Material:
    return gather(study)


def changed(records: Any, **fields: Any) -> Records:
    return Records(**{**vars(records), **fields})


@pytest.mark.parametrize("field", ["features", "labels", "ids"])
def test_any_change_to_a_partys_records_is_noticed(study: Any, material: Any, field: str, tmp_path: Path) -> None:
    require_same(study, material, tmp_path)
    require_same(study, gather(study), tmp_path)
    first = material.parties["clinic-02"]
    moved = changed(first, **{field: getattr(first, field)[::-1]})
    other = replace(material, parties={**material.parties, "clinic-02": moved})
    with pytest.raises(Refused, match=r"records of clinic-02\)"):
        require_same(study, other, tmp_path)
    fewer = {name: records for name, records in material.parties.items() if name != "clinic-03"}
    with pytest.raises(Refused, match="records of clinic-03"):
        require_same(study, replace(material, parties=fewer), tmp_path)
    require_same(study, material, tmp_path)


def test_test_records_predictions_and_auxiliary_records_count(study: Any, material: Any) -> None:
    known = digests(study, material)
    assert digests(study, replace(material, test=material.parties["clinic-01"])) != known
    one = Predictions(np.full((20, 2), 0.5), "a")
    found = [
        digests(study, replace(material, models={"clinic-01": model}))
        for model in (one, replace(one, where="b"), replace(one, votes=np.full((20, 2), 0.25)))
    ]
    assert known != found[0] == found[1] != found[2]
    halved = replace(study, protocol=replace(study.protocol, auxiliary=study.protocol.auxiliary / 2))
    assert digests(halved, material) != known


def test_a_run_that_is_resumed_asks(study: Any, material: Any, tmp_path: Path) -> None:
    run_study(study, seed=1, folder=tmp_path, run_id="r", material=material)
    assert (tmp_path / NAME).stat().st_mode & 0o077 == 0
    first = material.parties["clinic-01"]
    other = replace(material, parties={**material.parties, "clinic-01": changed(first, features=first.features / 2)})
    with pytest.raises(Refused, match="began with other data"):
        run_study(study, seed=1, folder=tmp_path, run_id="r", material=other)
    (tmp_path / NAME).write_text("{")
    with pytest.raises(StudyError, match=NAME):
        run_study(study, seed=1, folder=tmp_path, run_id="r", material=material)
