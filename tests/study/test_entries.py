"""What the entries of methods name is there: looked up in the sources, because importing all of it takes long."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

from comity.methods import PROTOCOLS, entry_of, method_of


def homes() -> list[str]:
    found: list[str] = []
    for name in PROTOCOLS:
        entry = entry_of(name)
        single = (entry.method, entry.starter)
        found += [home for home in (*single, *entry.estimators.values(), *entry.artefacts.values()) if home]
    return sorted(set(found))


@pytest.mark.parametrize("home", homes())
def test_a_home_is_a_module_and_a_name_in_it(home: str) -> None:
    module, _, name = home.partition(":")
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text("utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def test_every_folder_of_a_method_has_the_same_shape() -> None:
    for name in PROTOCOLS:
        spec = find_spec(f"comity.methods.{name}")
        assert spec is not None and spec.origin is not None
        folder = Path(spec.origin).parent
        for file in ("method.py", "starter.py", "entry.py", "proof.md", "published/__init__.py"):
            assert (folder / file).is_file(), folder / file


def test_every_option_of_a_method_has_its_type_when_the_class_is_made() -> None:
    """A type that is defined below its class would be found on first use alone, after documents were made of it."""
    for name in PROTOCOLS:
        assert method_of(name).__pydantic_complete__, name
