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


def commands(block: str) -> list[str]:
    """The commands of a block, those of a loop once for each owner. Not counted: what waits, lists and ends."""
    found, times = [], 1
    for line in block.replace("\\\n", " ").splitlines():
        if named := re.match(r"for \w+ in (.*); do", line):
            times = len(named[1].split())
        elif line == "done":
            times = 1
        elif command := re.match(r"\W*(?:cd \w+ && )?(?:exec )?(comity \w+(?: \w+)?|cat)\b", line.strip()):
            found += [command[1]] * times
    return found


def test_it_takes_twelve_commands() -> None:
    assert commands("for a in x y; do\n  comity site init \\\n --x\ndone\n(cd a && exec comity study submit) &") == [
        "comity site init",
        "comity site init",
        "comity study submit",
    ]
    typed = [command for block in blocks() for command in commands(block)]
    holder = ["comity consortium init", "comity relay serve", "comity consortium add"]
    owners = 3 * ["comity site init", "comity site approve"]
    coordinator = ["cat", "comity study submit", "comity fetch runs"]
    assert sorted(typed) == sorted([*holder, *owners, *coordinator])
    assert len(typed) <= 12


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
    assert "has not approved study" in (work / "coordinator" / "submit.log").read_text()
    (at_north,) = (work / "north" / "results").iterdir()
    at_the_coordinator, at_an_owner = (
        np.load(folder / "model" / "weights.npz") for folder in (work / "readmission", at_north)
    )
    assert at_the_coordinator.files == at_an_owner.files != []
    for name in at_an_owner.files:
        np.testing.assert_array_equal(at_the_coordinator[name], at_an_owner[name])
    stamps = [float(line) for line in (work / "times").read_text().split()]
    steps = [f"{after - before:.0f}" for before, after in pairwise(stamps)]
    print(f"seconds: {', '.join(steps)}; in all {time.monotonic() - began:.0f}")
