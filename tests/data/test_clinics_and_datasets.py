from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from comity.data import DATASETS, Encoding, clinic_schema, clinics, dataset, explain, public_cohort
from comity.errors import DataError, StudyError


def test_the_same_label_gives_the_same_records() -> None:
    first, again, other = clinics(3, 20), clinics(3, 20), clinics(3, 20, "another")
    assert list(first) == ["clinic-01", "clinic-02", "clinic-03"]
    for name, frame in first.items():
        pd.testing.assert_frame_equal(frame, again[name])
        assert not frame.equals(other[name])


def test_sizes_by_clinic_and_unique_patients() -> None:
    frames = clinics(3, [5, 0, 7])
    assert [len(frame) for frame in frames.values()] == [5, 0, 7]
    patients = pd.concat(frames.values())["patient"]
    assert patients.is_unique
    for target in ("readmitted", "disposition"):
        assert Encoding(clinic_schema(target)).encode(frames["clinic-02"]).records.features.shape[0] == 0


def test_records_fit_the_schema_up_to_declared_policies() -> None:
    table = pd.concat(clinics(10, 300).values(), ignore_index=True)
    assert {finding.severity for finding in explain(clinic_schema(), table)} == {"note"}
    encoded = Encoding(clinic_schema("disposition"), bins=True).encode(table)
    assert encoded.records.labels is not None and set(encoded.records.labels.tolist()) == {0, 1, 2}
    assert sum(encoded.tally.clipped.values()) < 0.01 * len(table)
    assert 0.1 < encoded.tally.missing["lactate"] / len(table) < 0.6


def test_public_cohort_is_unlabelled_and_encodes() -> None:
    cohort = public_cohort(300)
    assert list(cohort.columns) == list(clinic_schema().names)
    assert Encoding(clinic_schema(None), rows="scaled").encode(cohort).records.labels is None


def test_sites_differ() -> None:
    frames = list(clinics(8, 400).values())
    ages = [frame["age"].mean() for frame in frames]
    unmeasured = [frame["lactate"].isna().mean() for frame in frames]
    # Sampling alone spreads the mean age by about one year and the share by .025.
    assert np.std(ages) > 3 and np.std(unmeasured) > 0.06


def test_pooling_beats_a_small_clinic_beats_nothing() -> None:
    encoding = Encoding(clinic_schema(), rows="scaled", intercept=True)
    train = clinics(40, 60)
    test = encoding.encode(pd.concat(clinics(20, 300, "test").values())).records
    assert test.labels is not None
    constant = np.bincount(test.labels).max() / len(test)

    def accuracy(frame: pd.DataFrame, c: float) -> float:
        records = encoding.encode(frame).records
        return float(
            LogisticRegression(C=c, max_iter=1000)
            .fit(records.features, records.labels)
            .score(test.features, test.labels)
        )

    pooled = accuracy(pd.concat(train.values()), 100)
    own = np.mean([max(accuracy(frame, c) for c in (1, 10, 100)) for frame in list(train.values())[:12]])
    assert constant < 0.63 and pooled > 0.78 and own < pooled - 0.03


def test_a_thousand_clinics_take_under_a_second() -> None:
    clinics(2, 2)
    begun = time.process_time()
    assert len(clinics(1000, 40)) == 1000
    assert time.process_time() - begun < 1


@pytest.mark.parametrize("bad", [(0, 5), (2, [1]), (2, [1, -1])])
def test_impossible_consortia_are_refused(bad: Any) -> None:
    with pytest.raises(StudyError, match="clinics: expected at least one clinic"):
        clinics(*bad)
    with pytest.raises(StudyError, match="target: expected one of readmitted, disposition, found 'x'"):
        clinic_schema("x")  # type: ignore[arg-type]
    with pytest.raises(StudyError, match="expected a number of records >= 0"):
        public_cohort(-1)


def test_datasets_are_read_from_the_folder_named_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("COMITY_DATA", raising=False)
    with pytest.raises(DataError, match=r"COMITY_DATA is not set; set it to the folder that holds adult.parquet"):
        dataset("adult")
    monkeypatch.setenv("COMITY_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"there is no file .*adult.parquet; put it there, or set COMITY_DATA"):
        dataset("adult")
    with pytest.raises(DataError, match="unknown name 'adlut'; did you mean 'adult'"):
        dataset("adlut")
    pd.DataFrame({"income": [1, 2]}).to_parquet(tmp_path / "adult.parquet")
    assert dataset("adult")["income"].tolist() == [1, 2]
    assert len(set(DATASETS)) == 10
