"""The rooms of the house and the imports between them, read from the source without running it."""

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
class Room:
    """A package of the first level, or the modules beside them that stand alone."""

    name: str
    modules: int
    lines: int

    @property
    def size(self) -> str:
        """Rounded, so that a picture does not change with every line."""
        return f"{self.modules} modules, {max(1, round(self.lines / 500)) * 0.5:.1f}k lines"


@dataclass(frozen=True)
class House:
    """`floors` are the layers of the import contract, the highest first; `imports` counts, by two rooms, the modules of
    the first that import something of the second."""

    floors: tuple[tuple[str, ...], ...]
    rooms: Mapping[str, Room]
    imports: Mapping[tuple[str, str], int]


def house(root: Path) -> House:
    """Read from the source and the import contract under `root`."""
    floors = _floors(root / "pyproject.toml")
    known = {name for floor in floors for name in floor}
    modules: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    pairs: dict[tuple[str, str], set[Path]] = {}
    for path in sorted((root / "src" / PACKAGE).rglob("*.py")):
        room = _room(path.relative_to(root / "src").with_suffix("").parts)
        if room not in known:
            continue
        text = path.read_text()
        modules[room] += 1
        lines[room] += text.count("\n")
        for other in _imported(ast.parse(text)):
            if other in known and other != room:
                pairs.setdefault((room, other), set()).add(path)
    rooms = {name: Room(name, modules[name], lines[name]) for floor in floors for name in floor}
    return House(floors, rooms, {pair: len(paths) for pair, paths in sorted(pairs.items())})


def _floors(contract: Path) -> tuple[tuple[str, ...], ...]:
    contracts = tomllib.loads(contract.read_text())["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one["type"] == "layers" and _is_whole(one["layers"]))
    return tuple(tuple(_room(tuple(name.strip().split("."))) for name in re.split(r"[|:]", layer)) for layer in layers)


def _is_whole(layers: list[str]) -> bool:
    return any(name.strip() == f"{PACKAGE}.cli" for layer in layers for name in layer.split("|"))


def _room(parts: tuple[str, ...]) -> str:
    return parts[1] if len(parts) > 1 else ""


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            # `from comity import data` names the room behind the word import.
            alone = node.module == PACKAGE
            names = [f"{PACKAGE}.{one.name}" for one in node.names] if alone else [node.module]
        for name in names:
            parts = tuple(name.split("."))
            if parts[0] == PACKAGE:
                yield _room(parts)
