"""The suite's own behaviour when a test fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import time
from pathlib import Path

import pytest

FAILED = Path(__file__).parent / "failed"

@pytest.mark.parametrize("number", range(16))
def test_one(number):
    if number == 0:
        FAILED.touch()
        raise AssertionError
    until = time.monotonic() + 60
    while not FAILED.exists() and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(1)
"""


@pytest.mark.long
def test_a_failure_in_one_process_stops_the_others_after_the_test_that_they_are_in(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    (tmp_path / "test_slow.py").write_text(TESTS)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=200,
    )
    found = re.search(r"1 failed(?:, (\d+) passed)?", run.stdout)
    assert run.returncode and found, run.stdout
    assert int(found[1] or 0) <= 2, run.stdout
