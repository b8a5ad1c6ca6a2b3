"""On how many processors a measurement runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def count() -> int:
    """The processors that this process may use; 1 where that can't be told or changed."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


@contextmanager
def limited(cores: int) -> Iterator[None]:
    """This process, and threads that start meanwhile, use so many processors."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
