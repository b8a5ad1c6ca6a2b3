"""The public class: made from a schema, planned and simulated, and the same study as a file with the same terms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import comity
from comity.errors import StudyError
from comity.methods.synthetic import Synthetic, SyntheticProtocol
from comity.privacy.unit import Neighbours, Unit
from comity.study.study import Study

from .by_columns import HELD, make_people
from .consortia import NAMES, make_consortium, make_frame, make_schema

TERMS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
STUDY = """
[study]
name = "study"
protocol = "synthetic"
schema = "schema.toml"
[privacy]
epsilon = 1.0
delta = 1e-6
[synthetic]
%s
[parties.ash]
[parties.birch]
[parties.cedar]
"""


def written(folder: Path, options: str) -> Study:
    (folder / "schema.toml").write_text(make_schema().to_toml(), encoding="utf-8")
    (folder / "study.toml").write_text(STUDY % options, encoding="utf-8")
    return Study.load(folder / "study.toml")


@pytest.mark.parametrize("rows", [900, None])
def test_it_is_the_study_of_a_file_with_the_same_terms(tmp_path: Path, rows: int | None) -> None:
    made = comity.Synthetic(make_schema(), rows=rows).study(NAMES[:3], **TERMS)
    assert made.hash == written(tmp_path, "" if rows is None else f"rows = {rows}").hash
    assert made.privacy.unit is Unit.RECORD and made.privacy.neighbours is Neighbours.ADD_REMOVE


def test_the_earlier_name_of_an_option_is_read_with_a_notice_and_the_same_hash(tmp_path: Path) -> None:
    held = "\n".join(f"[parties.{party}]\ncolumns = {list(columns)}" for party, columns in HELD[2].items())
    text = STUDY.split("[parties.ash]")[0] + held
    (tmp_path / "schema.toml").write_text(make_schema().to_toml(), encoding="utf-8")
    found = []
    for option in ("max_rows", "rows_at_most"):
        (tmp_path / "study.toml").write_text(text % f"{option} = 500", encoding="utf-8")
        found.append(Study.load(tmp_path / "study.toml"))
    assert found[0].hash == found[1].hash and not found[0].notices
    assert "rows_at_most is now called synthetic.max_rows" in found[1].notices[0]


def test_frames_become_a_dataset_and_unit_and_neighbours_are_its_own() -> None:
    frames = {name: make_frame(300, seed) for seed, name in enumerate(NAMES[:3])}
    result = comity.Synthetic(make_schema(), sizes=300).simulate(frames, seed=1, **TERMS)
    assert list(result.presented.frame.columns) == [*make_schema().names, "ill"]
    assert "a record" in str(result.guarantee)


def test_sizes_say_what_rows_say() -> None:
    for sizes in (300, dict.fromkeys(NAMES[:3], 300)):
        built = Synthetic(make_schema(), sizes=sizes).protocol()
        plain = Synthetic(make_schema(), rows=900).protocol()
        assert isinstance(built, SyntheticProtocol) and isinstance(plain, SyntheticProtocol)
        assert built.declared_rows(make_consortium()) == plain.declared_rows(make_consortium()) == 900
        assert built.notes(make_consortium()) == plain.notes(make_consortium())


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"sizes": 300, "rows": 900}, "synthetic.sizes"),
        ({"sizes": {"ash": 300}}, "synthetic.sizes"),
        ({"sizes": 0}, "synthetic.sizes"),
        ({"size": 300}, "synthetic.size"),
        ({"model": "tree"}, "synthetic.model"),
    ],
)
def test_a_wrong_option_is_one_error_that_names_it(options: Any, key: str) -> None:
    with pytest.raises(StudyError) as refused:
        Synthetic(make_schema(), **options).plan(NAMES[:3], **TERMS)
    assert refused.value.key == key


def test_columns_of_the_same_people_are_matched_by_their_identifier() -> None:
    whole = make_people(200).sample(frac=1, random_state=1)
    known = replace(make_schema(), identifier="person")
    frames = {
        party: whole.sample(frac=1, random_state=len(columns))[["person", *columns]]
        for party, columns in HELD[2].items()
    }
    method = comity.Synthetic(known, columns=HELD[2], products="dealer", max_rows=1 << 10)
    result = method.simulate(frames, seed=1, epsilon=50.0, delta=1e-6)
    assert result.presented.counts.total == 200
    assert "replace" in str(result.guarantee.neighbours)
