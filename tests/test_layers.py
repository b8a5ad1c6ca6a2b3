"""Rules about who may import and make what, read off the sources."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "comity"

MINTS = {
    "Permit": {"privacy/permit.py", "privacy/ledger/transaction.py", "federation/owner/run_state.py"},
    "entrusted_permit": {"federation/coordinator/released.py"},
}
"""Who makes permits: privacy/, a step's effects, and a trusted coordinator through privacy/."""
ANSWERING = ("federation/", "site/", "relay/", "relay/", "privacy/mechanisms/", "learn/")
"""What runs where an owner's records are: no draw of it is a simulated one."""


def called(path: Path, *modules: str) -> set[str]:
    """Names of the modules that this file imports and calls."""
    tree = ast.parse(path.read_text())
    names = {
        one.asname or one.name: one.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in modules
        for one in node.names
    }
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {names[func.id] for func in calls if isinstance(func, ast.Name) and func.id in names}


def test_permits_are_made_where_something_is_debited_and_simulated_ones_in_simulations_alone() -> None:
    found: dict[str, set[str]] = {"Permit": {"privacy/permit.py"}, "entrusted_permit": set(), "simulated_permit": set()}
    for path in SOURCES.rglob("*.py"):
        for name in called(path, "comity.privacy.permit", "comity.privacy", "comity.protocol") & set(found):
            found[name].add(path.relative_to(SOURCES).as_posix())
    assert {name: found[name] for name in MINTS} == MINTS
    assert found["simulated_permit"], "the control: simulations draw"
    assert not [path for path in found["simulated_permit"] if path.startswith(ANSWERING)]


def imports(body: list[ast.stmt], *, typing: bool = False, inside: bool = False) -> Iterator[tuple[str, bool, bool]]:
    """Modules of ours that are imported: which, whether for type checkers alone, whether inside a function."""
    for node in body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("comity"):
            yield node.module or "", typing, inside
        within = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        named = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for part in ("body", "orelse", "handlers", "finalbody"):
            yield from imports(getattr(node, part, []), typing=typing or named, inside=within)


@pytest.mark.parametrize("room", ["federation", "privacy"])
def test_no_function_imports_what_its_module_could_not(room: str) -> None:
    """But for what takes long to import: OpenDP, behind the exact draws."""
    found = {
        (path.relative_to(SOURCES).as_posix(), module)
        for path in (SOURCES / room).rglob("*.py")
        for module, _, inside in imports(ast.parse(path.read_text()).body)
        if inside
    }
    assert found == ({("privacy/randomness.py", "comity.privacy.sampling.exact_draws")} if room == "privacy" else set())


def test_what_the_layers_of_federation_pass_over_is_named_in_signatures_alone() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    every = {tuple(one.split(" -> ")) for contract in contracts for one in contract.get("ignore_imports", ())}
    passed = {pair for pair in every if pair[0].startswith("comity.federation")}
    # Beside them: a method plans and simulates itself, and a result reports and saves itself, by late imports.
    assert {source for source, _ in every - passed} == {"comity.methods.method", "comity.study.results.result"}
    looked = 0
    for path in (SOURCES / "federation").rglob("*.py"):
        module = ".".join(("comity", *path.relative_to(SOURCES).with_suffix("").parts))
        for other, typing, _ in imports(ast.parse(path.read_text()).body):
            if {(module, other), (f"{module.rpartition('.')[0]}.*", other)} & passed:
                looked += 1
                assert typing, f"{module} imports {other} when it runs"
    assert looked >= len(passed)
