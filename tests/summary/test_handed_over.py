"""Records that are handed over: what their form refuses of a seller that deviates from the program, and how a consumer
finds on its own records that what it bought misleads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from comity.data import Bounded, Classes, Encoding, Numeric, Records, Schema
from comity.errors import Refused
from comity.methods.summary import OneShotSummary
from comity.methods.summary.artefact import BoughtRecords
from comity.methods.summary.auction.market import Market
from comity.study.simulation.simulate import RunOptions, Terms, simulate

from .auctions import build_auction
from .consortia import CONSUMER, ROLES, build_one_shot, join_records, make_consortium, make_records

COLUMNS = tuple(Numeric(f"x{place}", 0, 1) for place in range(4))
CLASSES = Encoding(Schema(COLUMNS, Classes("y", ("a", "b", "c", "d"))), scaling="unit")
NUMBER = Encoding(Schema(COLUMNS, Bounded("y", -2, 5)), scaling="unit")


def offered(labels: Any, rows: Any = 0.5, kind: str = "<i8") -> dict[str, Any]:
    return {"rows": np.full((1, 4), rows), "labels": np.array([labels], kind)}


@pytest.mark.parametrize("made, name", [(build_one_shot, "chosen"), (build_auction, "offer")])
def test_a_seller_hands_over_what_the_schema_lets_a_record_have(made: Any, name: str) -> None:
    consortium = make_consortium()
    form = made(encoding=CLASSES).declare(consortium)[name].form
    assert all(form.fits(offered(label), {}, consortium) for label in range(4))
    assert not any(form.fits(offered(label), {}, consortium) for label in (-1, 4, 1 << 50))
    assert not any(form.fits(offered(1, rows), {}, consortium) for rows in (-0.1, 1.1, 1e300))
    numbers = made(encoding=NUMBER, labels="<f8").declare(consortium)[name].form
    assert [numbers.fits(offered(label, kind="<f8"), {}, consortium) for label in (-2.1, -2.0, 5.0, 5.1)] == [
        0,
        1,
        1,
        0,
    ]


def test_hashes_are_as_long_as_features_are() -> None:
    consortium = make_consortium()
    form = build_one_shot(encoding=CLASSES, deliver="hashes", hash_dimensions=4).declare(consortium)["chosen"].form
    assert form.fits(offered(3, -0.7), {}, consortium)
    assert not form.fits(offered(3, -1.1), {}, consortium) and not form.fits(offered(4, -0.7), {}, consortium)


def test_a_class_that_there_is_none_of_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = OneShotSummary.choose

    def lying(self: Any, site: Any, quota: int) -> Any:
        found: Any = honest(self, site, quota)
        return {"chosen": {**found["chosen"], "labels": found["chosen"]["labels"] + 1000}}

    monkeypatch.setattr(lying, "spec", honest.spec, raising=False)  # type: ignore[attr-defined]
    monkeypatch.setattr(OneShotSummary, "choose", lying)
    with pytest.raises(Refused, match="chosen"):
        bought(build_one_shot(encoding=CLASSES))


def bought(method: Any, records: Any = None) -> Any:
    return simulate(
        method,
        parties=records or make_records(),
        epsilon=30.0,
        delta=1e-5,
        unit="record",
        seed=1,
        terms=Terms(hash="00" * 32, roles=ROLES),
        options=RunOptions(baselines=False, run_id="run"),
    ).presented


def with_rule(records: Records, *, turned: bool = False) -> Records:
    """Labels that follow from the records, or the other ones."""
    rule = records.features[:, 3] > 0.5
    return Records(records.features, (rule ^ turned).astype(np.int64))


@pytest.mark.parametrize("made", [build_one_shot, build_auction])
def test_a_consumer_finds_that_sellers_turned_the_labels_round(made: Any) -> None:
    method = made(records=60, sizes={party: len(own) for party, own in make_records().items()})
    own = with_rule(join_records(make_records()[CONSUMER], make_records()["birch"]))
    scores = []
    for turned in (False, True):
        records = {party: with_rule(one, turned=turned) for party, one in make_records().items()}
        found = method.score_own(bought(method, records), own, CONSUMER)
        assert found is not None and found.records == len(own)
        scores.append(found)
    honest, spoiled = scores
    assert not honest.is_worse and honest.error < honest.constant / 2
    assert spoiled.is_worse and "WORSE THAN A CONSTANT" in spoiled.sentence


def test_labels_of_no_sense_are_scored_as_wrong_ones() -> None:
    """Without a schema nothing says how many classes there are: a label counts as itself, whatever number it is."""
    method = build_one_shot(records=60)
    records = {party: with_rule(one) for party, one in make_records().items()}
    found = bought(method, records)
    assert isinstance(found, BoughtRecords) and found.labels is not None
    strange = replace(found, labels=np.where(found.labels == 1, 1 << 50, -7))
    score = method.score_own(strange, records[CONSUMER], CONSUMER)
    assert score is not None and score.error == 1.0 and score.is_worse


def test_what_has_no_classes_is_not_scored() -> None:
    own = with_rule(make_records()[CONSUMER])
    found = bought(build_one_shot(), {party: with_rule(one) for party, one in make_records().items()})
    methods: list[Any] = [build_one_shot(), build_auction()]
    for method in methods:
        assert isinstance(method, OneShotSummary | Market)
        assert method.score_own(replace(found, labels=None), own, CONSUMER) is None
        assert method.score_own(replace(found, labels=found.labels.astype(float)), own, CONSUMER) is None
        assert method.score_own(found, Records(own.features), CONSUMER) is None
        assert method.score_own(object(), own, CONSUMER) is None
