"""`python -m tools.picture`: draw the pictures of docs/architecture.md again."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tools.picture.drawing import draw_packages, draw_run
from tools.picture.packages import read_architecture
from tools.picture.trace import trace_packages

ROOT = Path(__file__).resolve().parents[2]
PACKAGES_SVG, RUN_SVG = "architecture-packages.svg", "architecture-run.svg"


def main() -> None:
    from comity.cli.app import app

    found = read_architecture(ROOT)
    (ROOT / "docs" / PACKAGES_SVG).write_text(draw_packages(found))
    with tempfile.TemporaryDirectory() as folder:
        start = str(Path(folder) / "study")
        app(["new", start, "--protocol", "averaging"], standalone_mode=False)
        out = str(Path(folder) / "runs")
        visited = trace_packages(
            lambda: app(["run", f"{start}/study.toml", "--seed", "7", "--quiet", "--out", out], standalone_mode=False)
        )
    (ROOT / "docs" / RUN_SVG).write_text(draw_run(found, visited, "comity run study.toml, averaging"))
    print(f"docs/{PACKAGES_SVG}, docs/{RUN_SVG}")


if __name__ == "__main__":
    main()
