"""One trial: a copy of the tree, perhaps one mutant in it, and the tests that are named."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.mutants.catalogue import Mutant, Stale

KILLED, SURVIVED, STALE, TIMEOUT, BROKEN = "killed", "survived", "stale", "timeout", "broken"

_FOLDERS = ("src", "experiments", "tests", "tools", "docs")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.M)
_PASSED, _SOME_FAILED = 0, 1


@dataclass(frozen=True)
class Ran:
    """How a run of pytest ended; `code` is None if it did not end in time."""

    code: int | None
    seconds: float
    output: str

    @property
    def failed(self) -> str:
        """The first test that failed."""
        found = _FAILED.search(self.output)
        return "" if found is None else found[1]


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    outcome: str
    seconds: float = 0.0
    detail: str = ""

    def __str__(self) -> str:
        where = self.mutant.file.removeprefix("src/comity/")
        return f"{self.outcome:<9} {self.seconds:5.1f} s  {where}: {self.mutant.rule}  [{self.detail}]"


@contextlib.contextmanager
def copied(root: Path) -> Iterator[Path]:
    """A copy of what the tests need, compiled files included; gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="comity-mutant-", ignore_cleanup_errors=True) as name:
        there = Path(name)
        for folder in _FOLDERS:
            if (root / folder).is_dir():
                shutil.copytree(root / folder, there / folder)
        for file in root.iterdir():
            if file.is_file() and not file.name.startswith("."):
                shutil.copy2(file, there)
        yield there


def tested(tree: Path, tests: Sequence[str], timeout: float) -> Ran:
    """Run tests of a tree against the sources of that tree, one process, up to the first failure."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-rfE", "--tb=line", "-p", "no:cacheprovider"]
    environment = {
        **os.environ,
        # Before an installed package, editable or not.
        "PYTHONPATH": os.pathsep.join((str(tree / "src"), str(tree))),
        "COMITY_HOME": str(tree / ".home"),
    }
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            [*command, *tests],
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code: int | None = None
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # With everything that the tests started.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return Ran(code, time.perf_counter() - started, output.read())


def tried(root: Path, mutant: Mutant, timeout: float) -> Verdict:
    """What the named tests say to one mutant."""
    with copied(root) as tree:
        path = tree / mutant.file
        try:
            changed = mutant.of(path.read_text("utf-8"))
        except (Stale, FileNotFoundError) as error:
            return Verdict(mutant, STALE, detail=str(error))
        _write(path, changed)
        ran = tested(tree, mutant.tests, timeout)
    if ran.code is None:
        return Verdict(mutant, TIMEOUT, ran.seconds, f"no end within {timeout:.0f} s")
    if ran.code == _PASSED:
        return Verdict(mutant, SURVIVED, ran.seconds, f"{' '.join(mutant.tests)} pass without the rule")
    if ran.code == _SOME_FAILED:
        return Verdict(mutant, KILLED, ran.seconds, ran.failed)
    # A file that can't be imported fails every test, also those that never look at the rule.
    return Verdict(mutant, BROKEN, ran.seconds, ran.output.strip()[-300:])


def reaches(root: Path, mutant: Mutant, timeout: float) -> bool:
    """Whether the tests see the copy's sources at all: a file that can't be imported must not leave them passing."""
    with copied(root) as tree:
        _write(tree / mutant.file, "raise ImportError('mutated')\n")
        return tested(tree, mutant.tests, timeout).code not in (_PASSED, None)


def _write(path: Path, source: str) -> None:
    path.write_text(source, "utf-8")
    # Of no file that was compiled before, so that nothing compiled is taken for this one.
    os.utime(path, (0, 0))
