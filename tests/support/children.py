"""Processes and threads of a test, which end with it: also when it fails, and when one of them hangs."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

LONGEST = 120
"""Seconds that any of them may take; a run of four sites takes less than one."""

_home = os.getpid()
_groups: list[int] = []


def fork() -> int:
    """As `os.fork`. A child of the test leads a group of its own, to which its own children belong, and which
    `end_children` ends. An alarm ends each of them even where the test is gone."""
    of_the_test = os.getpid() == _home
    child = os.fork()
    if child == 0:
        signal.alarm(LONGEST)
        if of_the_test:
            os.setpgid(0, 0)
    elif of_the_test:
        # Groups that are gone are forgotten, before their numbers are given to somebody else.
        _groups[:] = [*filter(_is_there, _groups), child]
        # Whichever of the two is first: a group that is not there yet could not be killed.
        with contextlib.suppress(OSError):
            os.setpgid(child, child)
    return child


def _is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def end_children() -> None:
    while _groups:
        group = _groups.pop()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(group, 0)


def at_once(*functions: Callable[[], Any], seconds: float = LONGEST) -> list[Any]:
    """What each returns, called at the same time in threads that don't keep a process alive; the first error is raised,
    and so is one that waits for ever."""
    results: list[Any] = [None] * len(functions)
    errors: list[BaseException] = []

    def call(place: int) -> None:
        try:
            results[place] = functions[place]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(place,), daemon=True) for place in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    if errors:
        raise errors[0]
    if any(thread.is_alive() for thread in threads):
        raise TimeoutError(f"still waiting after {seconds} seconds")
    return results
