"""Tests that fail leave nothing behind that a run would wait for."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.children import at_once, end_children, fork


def lives(pid: Any) -> Any:
    """Whether it runs: an orphan that nobody has collected yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def stuck(pipe: Any) -> None:
    """A child that waits for ever, with a child of its own that does the same and whose id it tells."""
    own = fork()
    if own:
        os.write(pipe, str(own).encode())
    while True:
        time.sleep(60)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_children_and_their_children_end_with_the_test() -> None:
    inward, outward = os.pipe()
    child = fork()
    if child == 0:
        try:
            stuck(outward)
        finally:
            os._exit(0)
    grandchild = int(os.read(inward, 20))
    os.close(inward)
    os.close(outward)
    assert lives(child) and lives(grandchild) and os.getpgid(grandchild) == os.getpgid(child) == child
    end_children()
    until = time.monotonic() + 10
    while (lives(child) or lives(grandchild)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not lives(child) and not lives(grandchild)
    with pytest.raises(ChildProcessError):
        os.waitpid(child, os.WNOHANG)


def test_a_child_that_was_waited_for_is_no_trouble() -> None:
    child = fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    end_children()


def test_an_alarm_ends_a_child_whose_test_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.children.LONGEST", 1)
    child = fork()
    if child == 0:
        try:
            time.sleep(60)
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGALRM


def test_threads_give_their_results_raise_their_errors_and_are_not_waited_for_for_ever() -> None:
    assert at_once(lambda: 1, lambda: 2) == [1, 2]

    def fails() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        at_once(lambda: 1, fails)
    never = threading.Event()
    try:
        with pytest.raises(TimeoutError, match=r"after 0\.1 seconds"):
            at_once(never.wait, seconds=0.1)
    finally:
        never.set()
