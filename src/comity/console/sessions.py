"""Sessions of a console: who is signed in with which browser. They end with the process.

Promise    A session's id and its form token are fresh random values. The id changes when somebody signs in. A session
           ends after `IDLE_SECONDS` without a request, and `LIFETIME_SECONDS` after it began. Only digests of ids are
           kept. A form token is good for its own session alone.
Against    Someone who plants an id in another person's browser, sends forms from another site, or uses a browser that
           was left open.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Any

IDLE_SECONDS = 15 * 60
LIFETIME_SECONDS = 8 * 3600
MAX_SESSIONS = 1000
_ID_BYTES = 32


@dataclass
class Session:
    """`person` is empty until somebody signs in. `password` is the digest of the hash that was valid then: a person
    whose password changed signs in again. `pending` is what a sign-in with a provider has to remember."""

    token: str
    began: float
    seen: float
    person: str = ""
    password: str = ""
    pending: Any = None
    notice: str = ""

    def is_own_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode("utf-8", "surrogatepass"), self.token.encode())


class Sessions:
    """All sessions of one console."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._sessions: dict[str, Session] = {}

    def begin(self, person: str = "", password: str = "") -> tuple[str, Session]:
        """A new session and its id, which the browser keeps."""
        key, now = secrets.token_urlsafe(_ID_BYTES), self._clock()
        session = Session(secrets.token_urlsafe(_ID_BYTES), now, now, person, password)
        with self._lock:
            self._drop_ended()
            if len(self._sessions) >= MAX_SESSIONS:
                self._drop_oldest()
            self._sessions[_digest(key)] = session
        return key, session

    def find(self, key: str) -> Session | None:
        """The session with this id, if it has not ended."""
        with self._lock:
            session = self._sessions.get(_digest(key))
            if session is None:
                return None
            if self._has_ended(session):
                del self._sessions[_digest(key)]
                return None
            session.seen = self._clock()
            return session

    def sign_in(self, key: str, person: str, password: str) -> tuple[str, Session]:
        """Replace the session of a browser by a new one, with another id and another token."""
        self.end(key)
        return self.begin(person, password)

    def end(self, key: str) -> None:
        with self._lock:
            self._sessions.pop(_digest(key), None)

    def _has_ended(self, session: Session) -> bool:
        now = self._clock()
        return now - session.seen > IDLE_SECONDS or now - session.began > LIFETIME_SECONDS

    def _drop_ended(self) -> None:
        for key in [key for key, one in self._sessions.items() if self._has_ended(one)]:
            del self._sessions[key]

    def _drop_oldest(self) -> None:
        """Visitors who have not signed in go first: they cost nothing to make."""
        oldest = min(self._sessions, key=lambda key: (bool(self._sessions[key].person), self._sessions[key].seen))
        del self._sessions[oldest]


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
