"""Purpose, contact, legal basis and retention: part of the agreement, and harmless wherever shown."""

from __future__ import annotations

from pathlib import Path

import pytest

import comity
from comity.errors import StudyError
from comity.report.page import render
from comity.study.study import Study
from tests.support.study_folder import STUDY, write_study

ABOUT = {
    "purpose": "learn which patients return",
    "contact": "study office",
    "legal_basis": "consent of the patients",
    "retention": "two years",
}
HOSTILE = "good\u202etxt <script>alert(1)</script>"


def with_keys(keys: dict[str, str]) -> str:
    lines = "".join(f'{key} = "{text}"\n' for key, text in keys.items())
    return STUDY.replace('name = "small"\n', f'name = "small"\n{lines}')


def test_every_text_is_part_of_the_hash_and_of_the_settings(tmp_path: Path) -> None:
    plain = Study.load(write_study(tmp_path))
    hashes = {plain.hash}
    for key, text in ABOUT.items():
        study = Study.load(write_study(tmp_path, text=with_keys({key: text})))
        assert study.settings()[f"study.{key}"] == text and f"study.{key}" not in study.defaults()
        assert study.plan().about.given() == {key: text}
        hashes.add(study.hash)
    whole = with_keys(ABOUT)
    hashes.add(Study.load(write_study(tmp_path, text=whole)).hash)
    hashes.add(Study.load(write_study(tmp_path, text=whole.replace("two years", "three years"))).hash)
    assert len(hashes) == 7


@pytest.mark.parametrize("key", ABOUT)
@pytest.mark.parametrize("text", ["", "two\\nlines", "x" * 501])
def test_a_text_is_one_short_line(tmp_path: Path, key: str, text: str) -> None:
    with pytest.raises(StudyError, match=f"study.{key}"):
        Study.load(write_study(tmp_path, text=with_keys({key: text})))


def test_a_text_can_neither_reorder_nor_add_to_what_is_shown(tmp_path: Path) -> None:
    study = Study.load(write_study(tmp_path, text=with_keys({"purpose": HOSTILE})))
    assert "\\u202e" in study.plan().as_text() and "\u202e" not in study.plan().as_text()
    result = comity.simulate(study, seed=1)
    result.save(tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "good\\u202etxt" in page and "\u202e" not in page and "<script" not in page
    assert comity.load_result(tmp_path / "run").plan.about == study.about
    assert render("demo.html.jinja", stories=[], version=HOSTILE).count("\\u202e") == 1
