"""The pictures of docs/architecture.md are those of the code as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.diagrams import DIAGRAMS
from tools.picture.__main__ import PACKAGES_SVG, ROOT, RUN_SVG
from tools.picture.drawing import draw_packages, draw_run
from tools.picture.packages import Architecture, Package, read_architecture
from tools.picture.trace import trace_packages

from comity.errors import BadInput

DOCS = ROOT / "docs"


def test_the_picture_of_the_packages_is_up_to_date() -> None:
    assert (DOCS / PACKAGES_SVG).read_text() == draw_packages(read_architecture(ROOT)), "draw it again: make picture"


def test_the_page_describes_every_package_and_shows_both_pictures() -> None:
    page = (DOCS / "architecture.md").read_text()
    described = set(
        re.findall(r"`([a-z_]+)`", "".join(line.split("|")[1] for line in page.splitlines() if "| `" in line))
    )
    assert described == set(read_architecture(ROOT).packages)
    assert f"]({PACKAGES_SVG})" in page and f"]({RUN_SVG})" in page


def test_the_path_of_a_run_passes_the_packages_it_must() -> None:
    shown = set(re.findall(r">([a-z]+)</text>", (DOCS / RUN_SVG).read_text()))
    assert (
        {"cli", "study", "methods", "federation", "privacy", "report"} <= shown <= set(read_architecture(ROOT).packages)
    )


def test_an_import_that_is_added_changes_the_picture(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    for name, text in (("cli/__init__.py", ""), ("privacy/a.py", ""), ("data/b.py", "x = 1\n")):
        path = tmp_path / "src" / "comity" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    before = read_architecture(tmp_path)
    assert not before.imports
    (tmp_path / "src/comity/cli/__init__.py").write_text(
        "import comity.privacy.a\ndef late():\n    from comity import data\n"
    )
    after = read_architecture(tmp_path)
    assert after.imports == {("cli", "privacy"): 1, ("cli", "data"): 1}
    assert draw_packages(after) != draw_packages(before)


def test_a_trace_has_the_packages_in_the_order_of_first_calls() -> None:
    def act() -> None:
        str(BadInput("no", code="x"))

    assert set(trace_packages(act)) == {"errors"}
    drawn = draw_run(
        Architecture((("a",), ("b",)), {n: Package(n, 1, 1) for n in "ab"}, {}), ["a", "b", "b", "a"], "it"
    )
    assert "4 functions, 2 changes of package" in drawn


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_is_drawn_from_its_words_and_shown_on_a_page(name: str) -> None:
    assert (DOCS / name).read_text("utf-8") == DIAGRAMS[name](), "draw it again: make picture"
    assert any(f"]({name})" in page.read_text("utf-8") for page in DOCS.glob("*.md"))


def test_words_of_a_diagram_fit_into_it() -> None:
    """A letter of 13 px is about 6.6 px wide on average, a bold one 7.5."""
    for name in DIAGRAMS:
        for bold, words in re.findall(r'<text[^>]*?( font-weight="bold")?>([^<]*)</text>', DIAGRAMS[name]()):
            assert len(words) * (7.5 if bold else 6.6) <= 400, (name, words)
