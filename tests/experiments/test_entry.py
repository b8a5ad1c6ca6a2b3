"""`python -m experiments`: names, options, one JSON form, sentences where something is wrong."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from experiments.__main__ import main
from experiments.bench import BENCHES
from experiments.choose import METHODS
from experiments.papers import PAPERS

HOMES = sorted({one.home for known in (BENCHES, PAPERS) for one in known.values()} | set(METHODS.values()))

PAPER_NAMES = {
    "averaging-adult",
    "forecasts",
    "generalisation",
    "intervals",
    "owners",
    "pate",
    "people",
    "warnings",
    *(f"softlabel-{name}" for name in ("har", "kdd", "mnist")),
    *(f"summary-{name}" for name in ("adult", "cps", "mnist")),
    *(f"synthetic-{name}" for name in ("fidelity", "table2")),
    *(f"vertical-{name}" for name in ("adult", "cps", "synthetic")),
}
BENCH_NAMES = {
    *("argmin", "averaging", "averaging-published", "consistency", "deploy", "ledger", "paillier", "product", "psi"),
    *("seal", "securesum", "softlabel-million", "softlabel-parties", "stream", "summary", "synthetic"),
    *("synthetic-columns", "vertical", "vertical-default", "warehouse", "averaging-pooled", "startup"),
    *("many-owners", "many-sites", "softlabel-hosts", "vertical-blocks"),
}


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMITY_DATA", raising=False)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def called(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return called


def test_names_are_those_that_documents_and_scripts_use() -> None:
    assert set(PAPERS) == PAPER_NAMES
    assert set(BENCHES) == BENCH_NAMES


@pytest.mark.parametrize("home", HOMES)
def test_every_experiment_has_its_function_with_the_options_it_names(home: str) -> None:
    """Looked up in the sources, because importing all of them takes long."""
    module, _, name = home.partition(":")
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    body = ast.parse(Path(spec.origin).read_text("utf-8")).body
    (function,) = (node for node in body if isinstance(node, ast.FunctionDef) and node.name == name)
    taken = {one.arg for one in (*function.args.args, *function.args.kwonlyargs)}
    for one in (*BENCHES.values(), *PAPERS.values()):
        assert one.home != home or set(one.options) <= taken


def test_papers_and_benches_have_one_json_form(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"case": "fit", "ours": 0.5, "spread": 0.1, "repeats": 3, "unit": "s"}
    asked = {}

    def measure(**options: object) -> list[dict[str, object]]:
        return [{**row, "anchor": 5.0, "ratio": 10.0, "note": "as it is"}]

    def compute(**options: object) -> list[dict[str, object]]:
        asked.update(options)
        return [{**row, "paper": 0.4}]

    homes = {BENCHES["ledger"].home: measure, PAPERS["softlabel-har"].home: compute}
    monkeypatch.setattr("experiments.experiment.resolve_name", homes.__getitem__)
    for command, name in (("bench", "ledger"), ("papers", "softlabel-har")):
        document = json.loads(call(command, name, "--json")[1])
        assert set(document) - {"quick"} == {"name", "rows", "machine", "versions"}
        assert document["name"] == name and document["rows"][0]["case"] == "fit"
        assert set(document["machine"]) == {"cpu", "cores", "memory_gb", "system"}
        listed = json.loads(call(command, "list", "--json")[1])
        assert name in {entry["name"] for entry in listed}
    assert asked == {"quick": False, "out": None}
    shown = call("bench", "ledger")[1]
    assert "ratio" in shown and "note: as it is" in shown
    assert "fewer repeats" in call("papers", "softlabel-har", "--quick")[1]
    assert asked["quick"] is True


@pytest.mark.parametrize("command", ["papers", "bench", "choose"])
def test_help_has_an_example_and_names_are_listed(call: Any, command: str) -> None:
    code, said, _ = call(command, "--help")
    assert code == 0 and f"python -m experiments {command}" in " ".join(said.split("Example", 1)[1].split())
    code, said, _ = call(command, "list")
    assert code == 0 and len(said.splitlines()) >= 3


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["papers", "nothing"], "there is no paper 'nothing'"),
        (["bench", "nothing"], "there is no bench 'nothing'"),
        (["choose", "nothing"], "there is no method 'nothing'"),
        (["bench", "ledger", "--rows", "5000"], "takes no --rows"),
        (["bench", "ledger", "--out", "plots"], "takes no --out"),
        (["papers"], "Missing argument"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_a_sentence(call: Any, given: list[str], sentence: str) -> None:
    code, out, err = call(*given)
    assert (code, out) == (2, "") and sentence in err


def test_missing_data_and_a_folder_that_can_not_be_made_are_sentences(call: Any, tmp_path: Path) -> None:
    code, _, err = call("papers", "softlabel-har", "--quick")
    assert code == 3 and "COMITY_DATA is not set" in err
    (tmp_path / "file").write_text("")
    code, _, err = call("papers", "softlabel-har", "--out", tmp_path / "file")
    assert code == 3 and "choose another --out" in err


def test_a_defect_shows_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**options: object) -> list[dict[str, object]]:
        raise ZeroDivisionError

    monkeypatch.setattr("experiments.experiment.resolve_name", lambda home: broken)
    with pytest.raises(ZeroDivisionError):
        main(["bench", "ledger"])
