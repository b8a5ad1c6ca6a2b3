"""Records that come in blocks: the same parts, the same sums, and a thread of another run changes neither."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from comity.data import Encoding, Records, Schema, StreamedRecords, open_source
from comity.federation.declare.evaluation import split_budget
from comity.federation.evaluation.holdout import holdout_mask, select_records
from comity.federation.evaluation.score_card import MAX_RECORDS
from comity.methods.averaging import Averaging
from comity.privacy.loss import Approx
from comity.privacy.unit import Neighbours, Unit
from comity.study.simulation.simulate import Terms, simulate
from tests.evaluation.test_study import SCHEMA

LOSS = Approx(1, "1e-6")


@pytest.fixture
def held(tmp_path: Path) -> tuple[Encoding, Records, StreamedRecords]:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": generator.integers(0, 100, 400),
            "dose": generator.uniform(-1, 1, 400),
            "sick": np.where(generator.uniform(size=400) < 0.5, "yes", "no"),
        }
    )
    frame.to_parquet(tmp_path / "records.parquet", index=False)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    encoding = Encoding(Schema.load(tmp_path / "schema.toml"), rows="normalised", intercept=True)
    source = open_source("records.parquet", where="test", base=tmp_path)
    return encoding, encoding.encode(frame).records, StreamedRecords.scan(source, encoding, piece=64)


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_a_stream_has_the_parts_that_its_records_have(
    held: tuple[Encoding, Records, StreamedRecords], neighbours: Neighbours
) -> None:
    _, whole, stream = held
    _, terms = split_budget(LOSS, Unit.RECORD, neighbours)
    masks = [holdout_mask(one, terms, bytes(32), unit=Unit.RECORD, neighbours=neighbours) for one in (whole, stream)]
    assert (masks[0] == masks[1]).all()
    part = select_records(stream, masks[0])
    blocks = [np.array(block.features) for block in part.blocks()]
    assert len(part) == masks[0].sum() and len(blocks) > 1
    assert np.array_equal(np.concatenate(blocks), whole.features[masks[0]])
    assert np.array_equal(part.labels, whole.labels[masks[0]])  # type: ignore[index,arg-type]


def test_figures_of_a_stream_are_those_of_its_records(held: tuple[Encoding, Records, StreamedRecords]) -> None:
    encoding, whole, stream = held
    built = Averaging.over_rows(features=encoding.width, sizes=400, rounds=1, classes=("no", "yes"))
    found = [
        simulate(
            built,
            parties={"a": one, "b": whole},
            epsilon=1.0,
            delta=1e-6,
            unit="record",
            seed=5,
            terms=Terms(evaluation={}),
        ).evaluation
        for one in (whole, stream)
    ]
    assert found[0] == found[1] is not None


def test_the_count_has_room_for_every_record_that_there_may_be() -> None:
    consortium = split_budget(LOSS, Unit.RECORD, Neighbours.REPLACE)[1]
    assert consortium.count(50_000_000) * 16 < 16 * MAX_RECORDS
