"""The documents are true as far as a program can tell: their blocks run, their links lead somewhere, their tables are
those of the code. Every document is checked by being in the tree."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from tools.reference import BEGIN, END, KEYS, with_keys

from comity.cli.editor_schemas import site_schema, study_schema

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "papers").glob("*.md"),
        ROOT / "experiments" / "README.md",
    ]
)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)


def with_code() -> list[Path]:
    return [path for path in DOCUMENTS if BLOCK.search(path.read_text("utf-8"))]


@pytest.mark.parametrize("path", with_code(), ids=lambda path: path.name)
def test_python_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMITY_HOME", str(tmp_path / "home"))
    module = ModuleType("document")
    monkeypatch.setitem(sys.modules, "document", module)
    for block in BLOCK.findall(path.read_text("utf-8")):
        exec(compile(block, str(path), "exec"), module.__dict__)


def test_there_are_documents_with_code() -> None:
    assert {path.name for path in with_code()} >= {"README.md", "CONTRIBUTING.md"}


def test_every_file_that_a_guarantee_names_exists() -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text("utf-8").partition("\n## ")[2]
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    rules = [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in rows if not row.startswith("| rule |")]
    assert len(rules) >= 233 and {len(cells) for cells in rules} == {3}
    named = {name for _, enforced, tested in rules for name in re.findall(r"`([^`]+)`", f"{enforced}, {tested}")}
    assert not {name for name in named if not any([*ROOT.glob(name), *(ROOT / "src" / "comity").glob(name)])}


def test_every_test_that_answers_a_theorem_exists() -> None:
    text = (ROOT / "docs" / "theorems.md").read_text("utf-8")
    for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
        assert (ROOT / file).exists(), file
        assert re.search(rf"^def {name}\b", (ROOT / file).read_text("utf-8"), re.M) if name else True, f"{file}::{name}"


def test_every_promise_has_a_section_with_rules_and_a_line_at_the_head() -> None:
    head, *sections = re.split(r"^## ", (ROOT / "docs" / "guarantees.md").read_text("utf-8"), flags=re.M)
    listed = re.findall(r"^\| \[([^\]]+)\]", head, re.M)
    assert listed == [section.split("\n")[0] for section in sections if "| rule |" in section]


# Links.

LINKED = [*DOCUMENTS, ROOT / "examples" / "README.md"]
LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
MADE = {"reference/commands.md", "reference/python.md"}
"""Pages that the build makes from the code (`tools.reference`)."""


def plain(text: str) -> str:
    """A document without its blocks and spans of code."""
    return re.sub(r"(`+)[^`].*?\1", "", re.sub(r"^( *```+).*?^\1", "", text, flags=re.S | re.M))


def anchors(text: str) -> set[str]:
    """Headings as GitHub and MyST name them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.add(name if name not in found else f"{name}-1")
    return found


def broken_links(path: Path) -> list[str]:
    """Links of a document to files or headings that do not exist. Addresses on the web are not tried."""
    broken = []
    for link in LINK.findall(plain(path.read_text("utf-8"))):
        if re.match(r"https?://|mailto:", link):
            continue
        file, _, anchor = link.partition("#")
        target = path if not file else (path.parent / file)
        if file in MADE:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            broken.append(link)
    return broken


@pytest.mark.parametrize("path", LINKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_link_of_a_document_is_broken(path: Path) -> None:
    assert not broken_links(path)


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A b\n[here](#a-b) [gone](#c) [no](no.md) [web](https://example.org) `[code](x.md)`\n```\n[b](y.md)\n```\n"
    )
    assert broken_links(page) == ["#c", "no.md"]


def test_the_index_lists_every_page_once() -> None:
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    listed = [
        line
        for block in re.findall(r"^```{toctree}\n(.*?)^```", index, re.S | re.M)
        for line in block.splitlines()
        if line and not line.startswith(":")
    ]
    pages = {
        str(path.relative_to(ROOT / "docs").with_suffix("")) for path in DOCUMENTS if path.is_relative_to(ROOT / "docs")
    }
    made = {name.removesuffix(".md") for name in MADE}
    assert sorted(listed) == sorted((pages - {"index"}) | made)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) < 150


# Blocks of code.

RUN = {
    "your-own-files.md": "tests/cli/test_your_own_files.py",
    "schema.md": "tests/cli/test_pages.py",
    "databases.md": "tests/cli/test_pages.py",
    "back-up.md": "tests/cli/test_pages.py",
    "approve.md": "tests/cli/test_pages.py",
    "first-study.md": "tests/cli/test_pages.py",
    "deploy.md": "tests/deploy/test_first_study.py",
}
"""Pages whose commands a test types."""


WHOLE_PAGE = "<!-- not run, the whole page: "


def unmarked(text: str) -> int:
    """How many blocks of commands have no note before them, or on their page, that says why no test runs them."""
    if WHOLE_PAGE in text:
        return 0
    blocks = re.finditer(r"^ *```(?:sh|console)\n", text, re.M)
    before = [text[: block.start()].rstrip().rpartition("\n")[2] for block in blocks]
    return sum(not line.strip().startswith("<!-- not run: ") for line in before)


@pytest.mark.parametrize("path", LINKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_run_in_a_test_or_say_why_not(path: Path) -> None:
    text = path.read_text("utf-8")
    if path.name in RUN:
        tests = (ROOT / RUN[path.name]).read_text("utf-8")
        assert path.name in tests, f"{RUN[path.name]} does not run {path.name}"
    else:
        assert unmarked(text) == 0, "put <!-- not run: why --> before a block of commands, or run it in a test"


def test_a_block_without_a_note_is_found() -> None:
    block = "```sh\nls\n```\n"
    assert unmarked(f"Text.\n\n{block}") == 1 and unmarked(f"<!-- not run: why -->\n{block}") == 0
    assert unmarked(f"{WHOLE_PAGE}why -->\n\n{block}\nText.\n\n{block}") == 0


@pytest.mark.parametrize("path", LINKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_of_toml_are_toml(path: Path) -> None:
    for block in re.findall(r"^```toml[^\n]*\n(.*?)^```", path.read_text("utf-8"), re.S | re.M):
        tomllib.loads(block)


# Tables that are made from the code.


@pytest.mark.parametrize("name", KEYS)
def test_the_keys_on_a_page_are_those_of_the_code(name: str) -> None:
    page = (ROOT / "docs" / name).read_text("utf-8")
    assert page.count(BEGIN) == page.count(END) == 1
    assert page == with_keys(name, page), "write them again: python -m tools.reference"
    assert with_keys(name, page.replace("| required |", "| nothing |", 1)) == page


def test_every_key_of_a_file_has_a_meaning() -> None:
    """On the pages, and for editors. Add one to `src/comity/cli/key_meanings.py`."""
    for name in KEYS:
        made = (ROOT / "docs" / name).read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
        assert not [line for line in made.splitlines() if line.startswith("| `") and line.strip("| ").count(" | ") != 3]
    epsilon = study_schema()["$defs"]["PrivacyTable"]["properties"]["epsilon"]
    approval = site_schema()["$defs"]["PolicyTable"]["properties"]["approval"]
    assert epsilon["description"] and approval["description"]
