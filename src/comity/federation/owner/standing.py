"""How a run and one path in it stand in an owner's file, from one look: what may be answered, and what was.

Every ask is looked at twice, before its step and inside the commit, where the first commit under a key wins.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from comity.errors import Refused
from comity.federation.messages.paths import BEGIN, StepPath
from comity.privacy.ledger import numbered_parameters

NONCE = "run:nonce"
"""The state that binds a run to the journal that began it."""

_LOOK = """
select (select value from state where owner = ?1 and run = ?2 and name = ?5),
       exists (select 1 from ended where owner = ?1 and run = ?2),
       begun.study, begun.body is null, here.digest, here.body
from (select 1)
left join reply as begun on begun.owner = ?1 and begun.run = ?2 and begun.path = ?3
left join reply as here on here.owner = ?1 and here.run = ?2 and here.path = ?4
"""


@dataclass(frozen=True, slots=True)
class Standing:
    """`study` is the one under which the run began here, if it did; `digest` is that of the ask that was answered under
    this path, if one was. Replies of a run that is over are deleted, their digests stay."""

    run: str
    path: StepPath
    nonce: bytes | None
    ended: bool
    study: str | None
    deleted: bool
    digest: bytes | None
    body: bytes | None

    @classmethod
    def of(cls, connection: sqlite3.Connection, owner: str, run: str, path: StepPath) -> Standing:
        found = connection.execute(_LOOK, numbered_parameters(owner, run, str(BEGIN), str(path), NONCE)).fetchone()
        nonce, ended, study, deleted, digest, body = found
        return cls(run, path, nonce, bool(ended), study, study is not None and bool(deleted), digest, body)

    def stored(self, digest: bytes) -> bytes | None:
        """The stored answer to this very ask; a different ask under the same key is refused."""
        if self.digest is None:
            return None
        if self.body is None or (self.digest != digest and self.ended):
            raise Refused(f"{self.path}: the run is closed and its replies are deleted", code="closed", key="run")
        if self.digest != digest:
            raise Refused(f"{self.path}: a different ask under the same key was answered before", code="asked-before")
        return self.body

    def require_begun(self, study: str) -> None:
        """Refuse everything but the beginning of a run until it has begun, and after it has ended: policy, approval and
        reservation are checked there. A run id belongs to one study."""
        if self.deleted or self.ended:
            raise Refused(f"run {self.run} is closed", code="closed", key="run")
        if self.study is None or self.study != study:
            raise Refused(f"run {self.run} of this study has not begun here", code="unreserved", key="run")
