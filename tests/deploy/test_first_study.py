"""The first study of `docs/deploy.md`, typed as the page has it, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from comity.relay.sandbox import free_port
from tests.support.relays import needs_server

pytestmark = [needs_server, pytest.mark.deploy]

PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"


def blocks() -> list[str]:
    section = PAGE.read_text("utf-8").partition("## A first study by hand")[2].partition("\n## ")[0]
    found = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    assert len(found) == 4
    return found


def test_a_newcomer_gets_from_an_empty_folder_to_fetched_results(tmp_path: Path) -> None:
    typed = "".join(f"date +%s.%N >> times\n{block}" for block in blocks()) + "date +%s.%N >> times\n"
    script = "set -e\n" + typed.replace("4222", str(free_port()))
    paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    home = {"COMITY_HOME": str(tmp_path / "home"), "PATH": paths}
    work = tmp_path / "work"
    work.mkdir()
    began = time.monotonic()
    done = subprocess.run(["bash", "-c", script], cwd=work, env={**os.environ, **home}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "code 4: not approved yet" in done.stdout
    at_the_coordinator, at_an_owner = (
        np.load(work / folder / "model" / "weights.npz") for folder in ("readmission", "north/mine")
    )
    assert at_the_coordinator.files == at_an_owner.files != []
    for name in at_an_owner.files:
        np.testing.assert_array_equal(at_the_coordinator[name], at_an_owner[name])
    stamps = [float(line) for line in (work / "times").read_text().split()]
    steps = [f"{after - before:.0f}" for before, after in pairwise(stamps)]
    print(f"seconds: {', '.join(steps)}; in all {time.monotonic() - began:.0f}")
