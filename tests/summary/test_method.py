"""The public class: made from a schema, planned and simulated, and the same study as a file with the same terms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import comity
from comity.data.public.digits import digit_pictures, digit_schema
from comity.errors import StudyError
from comity.methods.summary import Summary
from comity.methods.summary.artefact import BoughtRecords
from comity.privacy.unit import Neighbours, Unit
from comity.study.study import Study

EVEN, ODD = (0, 2, 4, 6, 8), (1, 3, 5, 7, 9)
SIZES = {"ash": 200, "birch": 200, "clinic": 100}
TERMS: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "consumer": "clinic"}
STUDY = """
[study]
name = "study"
protocol = "summary"
schema = "schema.toml"
[privacy]
epsilon = 8.0
delta = 1e-5
[summary]
records = 20
gamma = 0.1
sizes = {ash = 200, birch = 200, clinic = 100}
[parties.ash]
role = "owner"
[parties.birch]
role = "owner"
[parties.clinic]
role = "consumer"
"""


def frames() -> dict[str, Any]:
    return {
        name: digit_pictures(size, f"method {name}", digits=ODD if name == "birch" else EVEN)
        for name, size in SIZES.items()
    }


def test_it_is_the_study_of_a_file_with_the_same_terms(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(digit_schema().to_toml(), encoding="utf-8")
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    made = comity.Summary(digit_schema(), records=20, gamma=0.1, sizes=SIZES).study(list(SIZES), **TERMS)
    assert made.hash == Study.load(tmp_path / "study.toml").hash
    assert made.privacy.unit is Unit.RECORD and made.privacy.neighbours is Neighbours.REPLACE


def test_frames_become_bought_records_with_counted_sizes_and_a_public_table() -> None:
    public = digit_pictures(50, "method public").drop(columns="digit")
    result = comity.Summary(digit_schema(), records=20, auxiliary=public).simulate(frames(), seed=1, **TERMS)
    assert isinstance(result.presented, BoughtRecords) and len(result.presented) == 20


def test_one_size_is_that_of_every_party() -> None:
    one = Summary(digit_schema(), records=20, gamma=0.1, sizes=200)
    each = Summary(digit_schema(), records=20, gamma=0.1, sizes=dict.fromkeys(SIZES, 200))
    plans = [str(method.plan(list(SIZES), **TERMS)) for method in (one, each)]
    assert plans[0].partition("moments")[2] == plans[1].partition("moments")[2] != ""
    assert one.declared_records("ash") == each.declared_records("ash") == 200


@pytest.mark.parametrize("variant", ["default", "published"])
def test_every_variant_counts_sizes_where_none_are_given(variant: str) -> None:
    method = Summary(digit_schema(), variant=variant).with_counted_sizes(frames())
    assert method.sizes == SIZES and method.variant == variant and "was counted" in method.notices[0]


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({}, "summary.sizes"),
        ({"sizes": {"ash": 200}}, "summary.sizes"),
        ({"sizes": 200, "record": 20}, "summary.record"),
        ({"sizes": 5, "records": 100}, "summary.records"),
    ],
)
def test_a_wrong_option_is_one_error_that_names_it(options: Any, key: str) -> None:
    with pytest.raises(StudyError) as refused:
        Summary(digit_schema(), **{"gamma": 0.1, **options}).plan(list(SIZES), **TERMS)
    assert refused.value.key == key
