"""How often somebody may try to sign in.

Promise    Within `WINDOW_SECONDS`, at most `PER_NAME` wrong attempts for one name and `IN_ALL` for all names and links
           together are looked at; the others are refused before anything is computed or compared.
Why        A link has 256 random bits, so the limit protects passwords: `IN_ALL` attempts in 15 minutes are about 3,000
           a day. A person who knows the password waits at most for the window when somebody else used the attempts up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from time import monotonic

WINDOW_SECONDS = 15 * 60
PER_NAME, IN_ALL = 5, 30
_MAX_NAMES = 1000
ALL = "\0all"


class RateLimits:
    """Counts wrong attempts. A successful one is taken back."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._attempts: dict[str, deque[float]] = {}

    def take(self, name: str) -> bool:
        """Count an attempt before it is looked at; False if there were too many."""
        with self._lock:
            now = self._clock()
            for key in list(self._attempts):
                while self._attempts[key] and now - self._attempts[key][0] > WINDOW_SECONDS:
                    self._attempts[key].popleft()
                if not self._attempts[key]:
                    del self._attempts[key]
            own, every = self._attempts.get(name, ()), self._attempts.get(ALL, ())
            if len(own) >= PER_NAME or len(every) >= IN_ALL or len(self._attempts) >= _MAX_NAMES:
                return False
            for key in (name, ALL):
                self._attempts.setdefault(key, deque()).append(now)
            return True

    def give_back(self, name: str) -> None:
        """Take an attempt back that was right."""
        with self._lock:
            for key in (name, ALL):
                if self._attempts.get(key):
                    self._attempts[key].pop()
