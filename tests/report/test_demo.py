"""`comity demo` on studies of a few records: every method has its pictures on the page, a run and the run's page."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from comity.cli.simulate import text_as_run
from comity.demo import _first_sentence, run_demo
from comity.federation.evaluation.assessment import Assessment
from comity.methods import PROTOCOLS, entries, method_of
from comity.report.result import load_result
from tests.report.small_studies import small_text, write_records
from tests.report.test_page import Page


def write_small(name: str, folder: Path) -> None:
    """A starter that is small enough for a test."""
    text, overrides = small_text(f"{name} default delta=1e-6")
    write_records(folder, numeric=False)
    overrides |= {"privacy.epsilon": 1.0, "simulation.grant": 3.0, "simulation.test": "people.csv"}
    (folder / "study.toml").write_text(text_as_run(text, overrides), encoding="utf-8")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("demo")
    words: list[str] = []
    found = run_demo(out, words.append, starters={name: partial(write_small, name) for name in PROTOCOLS})
    return out, words, found


def test_every_method_has_a_row_a_picture_a_run_and_its_page(demo: Any) -> None:
    out, words, found = demo
    assert all(list(found[key]) == list(PROTOCOLS) for key in ("tables", "pages", "plots", "runs"))
    for name in PROTOCOLS:
        (row,) = found["tables"][name]
        assert row["epsilon"] == 1.0 and isinstance(row["error"], float)
        assert Path(found["pages"][name]).is_file() and (out / "studies" / name / "study.toml").is_file()
        assert any(word.startswith(f"{name}: ") for word in words)
    for plot in found["plots"].values():
        assert Path(plot).read_text().startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    json.dumps(found)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_run_has_no_seed_and_leaves_some_budget(demo: Any, name: str) -> None:
    _, _, found = demo
    result = load_result(found["runs"][name])
    assert result.seed is None and result.guarantee.private == (name != "summary")
    assert all(float(account.left.removeprefix("eps ")) > 1.5 for account in result.accounts)
    page = Path(found["pages"][name]).read_text()
    assert "not a private result" not in page
    # Chosen records are real ones, and the page says so.
    assert ("Exact values leave their owners" in page) == (name == "summary")


def test_the_page_shows_every_method_and_links_to_pages_beside_it_alone(demo: Any) -> None:
    out, _, found = demo
    text = Path(found["report"]).read_text()
    page = Page(text)
    outside = [address for address in page.addresses if not address.startswith(("#", "data:"))]
    assert set(outside) == {f"runs/{name}/report.html" for name in PROTOCOLS}
    assert all((out / address).is_file() for address in outside)
    assert page.wrong == [] and page.open == [] and page.loose == []
    assert text.count("<svg") >= len(PROTOCOLS)
    for name in PROTOCOLS:
        assert f"{found['tables'][name][0]['error']:.3f}" in page.text
    assert page.text.count("Exact values leave their owners") == 1


def test_each_story_says_who_holds_what_and_got_what_at_what_privacy(demo: Any) -> None:
    _, _, found = demo
    text = Page(Path(found["report"]).read_text()).text
    for words in ("Who", "What they hold", "What they got", "At what privacy"):
        assert text.count(words) >= len(PROTOCOLS)
    assert text.index("At what privacy") < text.index("The numbers")
    assert text.count("instead of 50 %") == len(PROTOCOLS)


def test_a_second_demo_replaces_the_first_and_may_have_no_score(demo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    out, _, found = demo
    unscored = replace(load_result(found["runs"]["averaging"]), assessment=Assessment())
    monkeypatch.setattr("comity.simulate", lambda study, progress: unscored)
    again = run_demo(out, starters={"averaging": partial(write_small, "averaging")})
    assert again["report"] == found["report"] and list(again["runs"]) == ["averaging"]
    assert again["tables"]["averaging"][0]["error"] is None and again["plots"] == {}
    assert "not measured" in Path(again["report"]).read_text()


def test_the_page_says_what_a_method_is_without_its_code() -> None:
    for name in entries():
        sentence = _first_sentence(method_of(name).__doc__ or "")
        assert sentence.endswith(".") and "(" not in sentence and len(sentence) < 140, sentence
