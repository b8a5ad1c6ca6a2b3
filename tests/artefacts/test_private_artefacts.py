"""What was delivered is its receiver's alone, in whatever format a library wrote it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pytest

from comity.artefacts.artefact import save_artefact
from comity.artefacts.dataset import Dataset
from comity.data import Numeric, Schema
from comity.files import write_atomically
from comity.learn.classifiers import LinearClassifier
from tests.support.modes import umask_zero, wider


@pytest.fixture
def open_umask() -> Iterator[None]:
    with umask_zero():
        yield


@pytest.mark.parametrize("stored", ["parquet", "csv"])
def test_records_of_others_that_were_delivered_are_not_for_everybody(
    stored: Literal["parquet", "csv"], tmp_path: Path, open_umask: None
) -> None:
    frame = pd.DataFrame({"age": [30.0, 40.0]})
    delivered = Dataset(frame, Schema((Numeric("age", 0, 100),)), stored)
    for _ in range(2):
        save_artefact(delivered, tmp_path / "results" / "run" / "data")
    save_artefact(LinearClassifier(np.zeros((1, 2)), (0, 1)), tmp_path / "results" / "run" / "model")
    assert wider(tmp_path) == []


def test_a_page_that_is_written_is_not_for_everybody(tmp_path: Path, open_umask: None) -> None:
    write_atomically(tmp_path / "new" / "folder" / "page", "text")
    (tmp_path / "wide").write_text("text")
    write_atomically(tmp_path / "wide", "text")
    assert wider(tmp_path) == []
