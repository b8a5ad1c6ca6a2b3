"""A starter with `variant = "published"` added: what has to change is said at once, and then it plans and runs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from comity.methods import PROTOCOLS
from comity.study.simulation.simulate import run_study
from comity.study.study import Study

SMALLER: dict[str, dict[str, Any]] = {
    "softlabel": {"simulation.baselines": False, "simulation.hosts": False},
    "averaging": {"simulation.baselines": False},
    "summary": {"summary.records": 3, "simulation.baselines": False},
    "synthetic": {"simulation.baselines": False},
    "vertical": {"simulation.baselines": False},
}


def published(text: str, protocol: str) -> str:
    assert f"\n[{protocol}]\n" in text
    return text.replace(f"\n[{protocol}]\n", f'\n[{protocol}]\nvariant = "published"\n')


def remedied(text: str, sentence: str) -> str:
    """The study with every change that the sentence names."""
    remove = re.search(r"remove ([a-z_., ]+?)(?:, and set|, or leave|, and each)", sentence)
    for key in [] if remove is None else re.findall(r"[a-z_]+\.[a-z_]+", remove.group(1)):
        table, name = key.split(".")
        text = re.sub(rf"(?ms)^\[{table}\.{name}\].*?(?=^\[)", "", text)
        start = text.index(f"\n[{table}]")
        end = text.find("\n[", start + 1) if "\n[" in text[start + 1 :] else len(text)
        text = text[:start] + re.sub(rf"(?m)^{name} *=.*\n", "", text[start:end]) + text[end:]
    for key, value in re.findall(r"privacy\.([a-z]+) to ([0-9.]+)", sentence):
        text = re.sub(rf"(?m)^{key} *= *\S+", f"{key} = {value}", text)
    return text


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_published_starter_plans_and_runs_as_the_sentence_says(
    protocol: str, tmp_path: Path, comity: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert comity("new", "made", "--protocol", protocol).code == 0
    path = tmp_path / "made" / "study.toml"
    path.write_text(published(path.read_text(), protocol))
    tomllib.loads(path.read_text())
    planned = comity("plan", path)
    if planned.code:
        assert planned.err.count("\n") == 1, planned.err
        assert "remove" in planned.err
        path.write_text(remedied(path.read_text(), planned.err))
        planned = comity("plan", path)
    assert planned.code == 0, planned.err
    ran = run_study(Study.load(path, overrides=SMALLER[protocol]), seed=1)
    assert ran.error is not None or ran.assessment.measured


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_new_writes_a_published_study_that_plans_as_it_is(
    protocol: str, tmp_path: Path, comity: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = comity("new", "paper", "--protocol", protocol, "--variant", "published")
    assert made.code == 0, made.err
    study = Study.load(tmp_path / "paper" / "study.toml")
    assert study.protocol.variant == "published"
    assert all(one.is_papers for key, one in study.method.constants.items() if key in type(study.method).model_fields)
    assert comity("plan", tmp_path / "paper" / "study.toml").code == 0


def test_a_variant_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path, comity: Any) -> None:
    refused = comity("new", tmp_path / "paper", "--protocol", "averaging", "--variant", "printed")
    assert refused.code == 2 and "--variant of averaging must be default or published" in refused.err
    assert not (tmp_path / "paper").exists()
