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
from comity.study.records.party_data import DIGESTS, PartyData, digest_data, load_party_data, require_same_data
from comity.study.simulation.simulate import run_study
from comity.study.study import Study
from tests.report.small_studies import small_study


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return small_study("softlabel published method=avg", tmp_path)


@pytest.fixture
def party_data(study: Any) -> PartyData:
    return load_party_data(study)


def changed(records: Any, **fields: Any) -> Records:
    return Records(**{**vars(records), **fields})


@pytest.mark.parametrize("field", ["features", "labels", "ids"])
def test_any_change_to_a_partys_records_is_noticed(study: Any, party_data: Any, field: str, tmp_path: Path) -> None:
    require_same_data(study, party_data, tmp_path)
    require_same_data(study, load_party_data(study), tmp_path)
    first = party_data.parties["clinic-02"]
    moved = changed(first, **{field: getattr(first, field)[::-1]})
    other = replace(party_data, parties={**party_data.parties, "clinic-02": moved})
    with pytest.raises(Refused, match=r"records of clinic-02\)"):
        require_same_data(study, other, tmp_path)
    fewer = {name: records for name, records in party_data.parties.items() if name != "clinic-03"}
    with pytest.raises(Refused, match="records of clinic-03"):
        require_same_data(study, replace(party_data, parties=fewer), tmp_path)
    require_same_data(study, party_data, tmp_path)


def test_test_records_predictions_and_auxiliary_records_count(study: Any, party_data: Any) -> None:
    known = digest_data(study, party_data)
    assert digest_data(study, replace(party_data, test=party_data.parties["clinic-01"])) != known
    one = Predictions(np.full((20, 2), 0.5), "a")
    found = [
        digest_data(study, replace(party_data, models={"clinic-01": model}))
        for model in (one, replace(one, where="b"), replace(one, votes=np.full((20, 2), 0.25)))
    ]
    assert known != found[0] == found[1] != found[2]
    halved = replace(study, protocol=replace(study.protocol, auxiliary=study.protocol.auxiliary / 2))
    assert digest_data(halved, party_data) != known


def test_a_run_that_is_resumed_asks(study: Any, party_data: Any, tmp_path: Path) -> None:
    run_study(study, seed=1, folder=tmp_path, run_id="r", data=party_data)
    assert (tmp_path / DIGESTS).stat().st_mode & 0o077 == 0
    first = party_data.parties["clinic-01"]
    other = replace(
        party_data, parties={**party_data.parties, "clinic-01": changed(first, features=first.features / 2)}
    )
    with pytest.raises(Refused, match="began with other data"):
        run_study(study, seed=1, folder=tmp_path, run_id="r", data=other)
    (tmp_path / DIGESTS).write_text("{")
    with pytest.raises(StudyError, match=DIGESTS):
        run_study(study, seed=1, folder=tmp_path, run_id="r", data=party_data)
