"""Statistics that are sums over records take them in blocks; those of local classifiers need all at once and say so."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from comity.data import Classes, Encoding, Frame, Numeric, Records, Schema, StreamedRecords
from comity.errors import DataError
from comity.federation.owner.rows import Rows
from comity.methods.softlabel.method import SoftLabel, SoftLabelProtocol
from comity.methods.softlabel.record_sums import Cells, ClassSums
from comity.study.simulation.simulate import RunOptions, Terms, simulate

from .default_consortia import WIDTH, clusters

CLASSES = 3
SCHEMA = Schema(tuple(Numeric(f"x{at}", -1, 1) for at in range(WIDTH)), Classes("y", ("0", "1", "2")))
ENCODING = Encoding(SCHEMA)
TERMS: dict[str, Any] = {
    "epsilon": 2.0,
    "delta": 1e-6,
    "unit": "party",
    "seed": 5,
    "options": RunOptions(baselines=False),
}


def table(records: Records) -> pd.DataFrame:
    return pd.DataFrame(records.features.clip(-1, 1), columns=list(SCHEMA.names)).assign(y=records.labels)


def protocol(statistic: Any) -> SoftLabelProtocol:
    return SoftLabel.over_rows(
        auxiliary=clusters(CLASSES, 60, seed=99).features.clip(-1, 1),
        classes=("0", "1", "2"),
        statistic=statistic,
        sizes=40,
        encoding=ENCODING,
    )


def make_consortium(limit: int = 1, piece: int = 7) -> tuple[dict[str, Records], dict[str, StreamedRecords]]:
    tables = {name: table(clusters(CLASSES, 30 + 5 * at, seed=at)) for at, name in enumerate("abcdef")}
    whole = {name: ENCODING.encode(one).records for name, one in tables.items()}
    streamed = {
        name: StreamedRecords.scan(Frame(one), ENCODING, where=name, limit=limit, piece=piece)
        for name, one in tables.items()
    }
    return whole, streamed


@pytest.mark.parametrize("statistic", ["class-sums", "cells"])
def test_a_run_over_blocks_gives_the_statistic_of_a_run_in_memory(statistic: str) -> None:
    whole, streamed = make_consortium()
    first = simulate(protocol(statistic), parties=whole, **TERMS)
    second = simulate(protocol(statistic), parties=streamed, **TERMS)
    assert np.allclose(first.released["model"], second.released["model"], rtol=0, atol=1e-6)
    assert np.abs(first.released["model"]).max() > 1e-3 and first.guarantee == second.guarantee


@pytest.mark.parametrize("statistic", ["votes", "histograms", "models"])
def test_local_classifiers_need_all_records_and_the_study_is_refused(statistic: str) -> None:
    _, streamed = make_consortium()
    with pytest.raises(DataError, match="needs all records of an owner at once") as caught:
        simulate(protocol(statistic), parties=streamed, **TERMS)
    assert caught.value.key == "memory"


@pytest.mark.parametrize("cut", [1, 10, 29, 30])
def test_parts_of_blocks_add_up_to_the_contribution(cut: int) -> None:
    records = clusters(CLASSES, 30, seed=1)
    auxiliary = clusters(CLASSES, 60, seed=99).features
    assert records.labels is not None
    for statistic in (
        ClassSums.on(auxiliary, CLASSES, records_per_party=30),
        Cells.on(auxiliary, CLASSES, cells=4),
    ):
        whole = statistic.contribution(records.features, cast(Any, records.labels), np.ones(30, bool))
        parts = [
            statistic.part(Rows(records.features[at], records.labels[at], np.ones(len(records.labels[at]), bool), 30))
            for at in (slice(0, cut), slice(cut, 30))
        ]
        assert np.allclose(statistic.of_total(parts[0] + parts[1]), whole, rtol=0, atol=1e-14)
        one = statistic.of_total(statistic.part(Rows(records.features, records.labels, np.ones(30, bool), 30)))
        assert one.tobytes() == whole.tobytes() and np.abs(whole).max() > 0


def test_a_party_without_records_says_nothing() -> None:
    statistic = ClassSums.on(clusters(CLASSES, 60, seed=99).features, CLASSES, records_per_party=30)
    empty = Rows(np.zeros((0, WIDTH)), np.zeros(0, np.int64), np.zeros(0, bool), 0)
    assert not statistic.of_total(statistic.part(empty)).any()


def test_what_is_measured_on_blocks_that_were_set_aside_is_what_is_measured_on_the_whole() -> None:
    whole, streamed = make_consortium()
    found = [
        simulate(protocol("class-sums"), parties=one, terms=Terms(evaluation={}), **TERMS).evaluation
        for one in (whole, streamed)
    ]
    assert found[0] is not None and found[0] == found[1]
