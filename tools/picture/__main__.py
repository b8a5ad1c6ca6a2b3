"""`python -m tools.picture`: draws the house again, into docs/."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tools.picture.drawn import rooms_and_imports, way
from tools.picture.rooms import house
from tools.picture.walk import walked

ROOT = Path(__file__).resolve().parents[2]
ROOMS, WAY = "architecture-rooms.svg", "architecture-way.svg"


def main() -> None:
    from comity.cli.app import app

    found = house(ROOT)
    (ROOT / "docs" / ROOMS).write_text(rooms_and_imports(found))
    with tempfile.TemporaryDirectory() as folder:
        start = str(Path(folder) / "study")
        app(["new", start, "--protocol", "averaging"], standalone_mode=False)
        out = str(Path(folder) / "runs")
        visited = walked(
            lambda: app(["run", f"{start}/study.toml", "--seed", "7", "--quiet", "--out", out], standalone_mode=False)
        )
    (ROOT / "docs" / WAY).write_text(way(found, visited, "comity run study.toml, averaging"))
    print(f"docs/{ROOMS}, docs/{WAY}")


if __name__ == "__main__":
    main()
