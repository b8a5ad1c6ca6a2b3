"""A run that stops at a failure (`-x`, `--maxfail`) stops in all of its processes; the default suite repeats itself.

A worker of pytest-xdist that is told to stop first does everything that is in its queue: minutes of writing to disk, in
which a run that has failed looks as if it hung.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Before NumPy is imported, also in processes that tests start: two workers of two threads each take twice as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Where no bytecode is kept, each worker rewrites the assertions of all test files, and each process that a test starts
# compiles the package: minutes of a run.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What the default suite says of a commit is the same on every machine. `make test-long` draws new examples each time.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("searching", print_blob=True, deadline=None)
settings.load_profile("repeatable")


class StopTogether:
    def __init__(self, flag: Path, most: int) -> None:
        self.flag, self.most, self.failures = flag, most, 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failures += report.failed
        if self.failures >= self.most:
            self.flag.touch()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        done = yield
        if self.flag.exists():
            item.session.shouldstop = "a failure in another process of the run"
        return done


@pytest.fixture(scope="session", autouse=True)
def stop_together(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    config = request.config
    if hasattr(config, "workerinput") and (most := config.getoption("maxfail")):
        # The folder of the run, in which each worker has its own.
        flag = tmp_path_factory.getbasetemp().parent / "stopped"
        config.pluginmanager.register(StopTogether(flag, most))
