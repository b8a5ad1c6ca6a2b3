"""One thread for each matrix product while several steps or blocks run at once.

BLAS starts as many threads for a product as there are processors. Over blocks that fit a cache its threads wait for
each other longer than they compute, and parties that compute at once each start as many.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

_guard = Lock()
_inside = 0
_limits: Any = None


@cache
def _controller() -> Any:
    # It looks at every loaded library, which takes milliseconds.
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS uses one thread as long as any thread of the process is in here, and then as many as before."""
    global _inside, _limits
    with _guard:
        if not _inside:
            _limits = _controller().limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _guard:
            _inside -= 1
            if not _inside:
                _limits.restore_original_limits()
                _limits = None
