"""The catalogue of mutants fits the sources, and its runner tells a killed mutant from one that survives."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tools.mutants.__main__ import attack, main, summed
from tools.mutants.catalogue import Mutant, Stale, folder_of, folders_of, read
from tools.mutants.trial import BROKEN, KILLED, STALE, SURVIVED, TIMEOUT, Verdict, tried

ROOT = Path(__file__).parents[1]


@cache
def text_of(file: str) -> str:
    return (ROOT / file).read_text("utf-8")


@cache
def left_out(file: str) -> frozenset[str]:
    """Tests of a file that the default suite does not run; the empty name stands for all of them."""
    found, marked = set(), False
    for line in text_of(file).splitlines():
        whole = line.startswith("pytestmark = ")
        if line.startswith("@pytest.mark.") or whole:
            marked = marked or line.endswith(("mark.long", "mark.deploy"))
        if marked and (whole or line.startswith("def ")):
            found.add("" if whole else line[4 : line.index("(")])
        if whole or line.startswith("def "):
            marked = False
    return frozenset(found)


def test_every_mutant_fits_the_sources_and_names_tests_beside_its_rule() -> None:
    mutants = read()
    assert len(mutants) >= 40
    for mutant in mutants:
        source = text_of(mutant.file)
        changed = mutant.of(source)
        assert changed != source, mutant.rule
        compile(changed, mutant.file, "exec")
        assert mutant.tests, mutant.rule
        for path in mutant.tests:
            file, _, test = path.partition("::")
            assert file.startswith(folders_of(mutant.file)) and (ROOT / file).is_file(), (mutant.rule, path)
            assert f"def {test}" in text_of(file), (mutant.rule, path)
            # A mutant is tried by what the default suite runs.
            assert test not in left_out(file), (mutant.rule, path)


def undefined_names(mutants: list[Mutant], folder: Path) -> str:
    """What ruff says of names that a mutated source uses and nobody defines."""
    for place, mutant in enumerate(mutants):
        source = (ROOT / mutant.file).read_text("utf-8")
        (folder / f"mutant_{place}.py").write_text(mutant.of(source), "utf-8")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "--output-format", "concise"]
    return subprocess.run([*command, str(folder)], capture_output=True, text=True, check=False).stdout


def test_no_mutant_dies_of_a_name_that_does_not_exist(tmp_path: Path) -> None:
    """A test that fails of a NameError or AttributeError says nothing about the rule."""
    mutants = read()
    assert "All checks passed" in (said := undefined_names(mutants, tmp_path)), said
    known = set(re.findall(r"\w+", "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))))
    unknown = {
        (mutant.file, mutant.rule, name)
        for mutant in mutants
        for name in re.findall(r"\.([a-z_]\w*)", mutant.put)
        if name not in known
    }
    assert not unknown


def test_a_name_that_does_not_exist_is_found(tmp_path: Path) -> None:
    first = read()[0]
    (tmp_path / "good").mkdir()
    assert "All checks passed" in undefined_names([first], tmp_path / "good")
    (tmp_path / "bad").mkdir()
    broken = replace(first, put="if nobody_defines_this:")
    assert "nobody_defines_this" in undefined_names([broken], tmp_path / "bad")


def test_no_two_mutants_are_the_same() -> None:
    mutants = read()
    assert max(Counter((mutant.file, mutant.rule) for mutant in mutants).values()) == 1
    assert max(Counter((mutant.file, mutant.find, mutant.put) for mutant in mutants).values()) == 1


def test_every_part_that_guards_a_promise_has_mutants() -> None:
    of = Counter(folder_of(mutant.file) for mutant in read())
    wanted = ("privacy", "federation", "crypto", "averaging", "softlabel", "vertical", "learn")
    assert all(of[f"tests/{name}/"] for name in wanted), of


SOURCE = """
from time import sleep


def spend(left, asked):
    if asked > left:
        raise ValueError("refused")
    if asked < 0:
        raise ValueError("negative")
    return left - asked
"""
TESTS = """
import pytest

from made import budget


def test_no_more_than_is_left():
    assert budget.spend(3, 3) == 0
    with pytest.raises(ValueError):
        budget.spend(3, 4)
"""
FILE, TEST = "src/made/budget.py", "tests/test_budget.py"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of one rule that is tested and one that is not."""
    # Most plugins take longer to import than these tests to run; the command has an option of xdist.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")
    for name, text in ((FILE, SOURCE), ("src/made/__init__.py", ""), (TEST, TESTS), ("pyproject.toml", "")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def mutant(find: Any, put: Any, rule: str = "rule") -> Mutant:
    return Mutant(rule, FILE, find, put, (TEST,))


TESTED = mutant("if asked > left:", "if asked > left + 1:", "spends one more than is left")
UNTESTED = mutant("if asked < 0:", "if False:", "spends less than nothing")


def test_a_killed_mutant_is_told_with_the_test_that_failed(tree: Any) -> None:
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    verdict = tried(tree, TESTED, 60)
    assert (verdict.outcome, verdict.detail) == (KILLED, f"{TEST}::test_no_more_than_is_left")
    # In a copy: the tree itself is as it was.
    assert {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()} == before


def test_a_mutant_that_no_test_notices_survives(tree: Any) -> None:
    """Positive control: a runner that calls everything killed would pass the other tests."""
    assert tried(tree, UNTESTED, 60).outcome == SURVIVED


def test_a_mutant_that_can_not_be_imported_is_no_kill(tree: Any) -> None:
    assert tried(tree, mutant("from time import sleep", "from time import slept"), 60).outcome == BROKEN


def test_a_mutant_that_hangs_is_no_kill_and_is_ended(tree: Any) -> None:
    assert tried(tree, mutant("return left - asked", "return sleep(600)"), 3).outcome == TIMEOUT


@pytest.mark.parametrize("find", ["if asked > more:", "raise ValueError"])
def test_source_text_that_is_not_there_exactly_once_is_stale(tree: Any, find: str) -> None:
    stale = mutant(find, "pass")
    with pytest.raises(Stale, match="the catalogue is stale"):
        stale.of(SOURCE)
    assert tried(tree, stale, 60).outcome == STALE
    assert tried(tree, replace(TESTED, file="src/made/gone.py"), 60).outcome == STALE


def test_a_run_is_good_if_every_mutant_was_killed_and_only_then() -> None:
    killed = Verdict(TESTED, KILLED)
    assert summed([killed, killed], 1.0) == 0
    for outcome in (SURVIVED, STALE, TIMEOUT, BROKEN):
        assert summed([killed, Verdict(UNTESTED, outcome)], 1.0) == 1


def test_tests_that_fail_without_a_mutant_kill_nothing(tree: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / TEST).write_text(TESTS + "    assert budget.spend(3, 1) == 1\n", "utf-8")
    assert attack(tree, [TESTED], 1) == 1
    assert "a kill by it means nothing" in capsys.readouterr().out


def test_tests_that_do_not_see_the_copied_sources_kill_nothing(tree: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / TEST).write_text("def test_nothing():\n    pass\n", "utf-8")
    assert attack(tree, [TESTED], 1) == 1
    assert "do not import" in capsys.readouterr().out


def test_the_catalogue_is_read_line_by_line_and_chosen_by_words(
    tree: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = f"""
["{FILE}"]
"spends more" = {{ find = 'if asked > left:', put = 'if False:', tests = "{TEST}" }}
"spends less" = {{ find = 'if asked < 0:', put = 'if False:', tests = "{TEST}" }}
"""
    (tmp_path / "lines.toml").write_text(lines, "utf-8")
    given = ["--root", str(tree), "--catalogue", str(tmp_path / "lines.toml")]
    assert main([*given, "spends"]) == 1
    said = capsys.readouterr().out
    assert "killed" in said and "NOT KILLED survived" in said
    assert main([*given, "nothing of the kind"]) == 2
    assert "no mutant has these words" in capsys.readouterr().err
