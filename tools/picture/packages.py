"""The packages, their sizes and the imports between them, read from the source without running it."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "comity"


@dataclass(frozen=True)
class Package:
    """A package of the first level, or a single module beside the packages."""

    name: str
    modules: int
    lines: int

    @property
    def size(self) -> str:
        """Rounded, so that a picture does not change with every line."""
        return f"{self.modules} modules, {max(1, round(self.lines / 500)) * 0.5:.1f}k lines"


@dataclass(frozen=True)
class Architecture:
    """`layers` are those of the import contract, the highest first. `imports` counts, for two packages, the modules of
    the first that import the second."""

    layers: tuple[tuple[str, ...], ...]
    packages: Mapping[str, Package]
    imports: Mapping[tuple[str, str], int]


def read_architecture(root: Path) -> Architecture:
    """Read the source and the import contract under `root`."""
    layers = _layers(root / "pyproject.toml")
    known = {name for layer in layers for name in layer}
    modules: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    pairs: dict[tuple[str, str], set[Path]] = {}
    for path in sorted((root / "src" / PACKAGE).rglob("*.py")):
        package = _package_of(path.relative_to(root / "src").with_suffix("").parts)
        if package not in known:
            continue
        text = path.read_text()
        modules[package] += 1
        lines[package] += text.count("\n")
        for other in _imported(ast.parse(text)):
            if other in known and other != package:
                pairs.setdefault((package, other), set()).add(path)
    packages = {name: Package(name, modules[name], lines[name]) for layer in layers for name in layer}
    return Architecture(layers, packages, {pair: len(paths) for pair, paths in sorted(pairs.items())})


def _layers(contract: Path) -> tuple[tuple[str, ...], ...]:
    contracts = tomllib.loads(contract.read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one["type"] == "layers" and _is_whole(one["layers"]))
    return tuple(
        tuple(_package_of(tuple(name.strip().split("."))) for name in re.split(r"[|:]", layer)) for layer in layers
    )


def _is_whole(layers: list[str]) -> bool:
    return any(name.strip() == f"{PACKAGE}.cli" for layer in layers for name in layer.split("|"))


def _package_of(parts: tuple[str, ...]) -> str:
    return parts[1] if len(parts) > 1 else ""


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            # `from comity import data` names the package after the word import.
            alone = node.module == PACKAGE
            names = [f"{PACKAGE}.{one.name}" for one in node.names] if alone else [node.module]
        for name in names:
            parts = tuple(name.split("."))
            if parts[0] == PACKAGE:
                yield _package_of(parts)
