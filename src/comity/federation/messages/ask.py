"""An ask as bytes: study, run, path, values for all and for one party, mail, the journal's nonce, ledger heads.

The path is `mount.step[label]`. A step has one path per label and no other spelling; otherwise it could be asked for
again under a second key. The nonce binds a run to one journal: a site takes it at the beginning and refuses asks with
another, because a coordinator that lost its journal would draw its own noise a second time and show other lists.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from comity.errors import Malformed
from comity.federation.messages.codec import Embedded, Value, decode, encode, leading_text
from comity.federation.messages.heads import Head, are_heads
from comity.federation.messages.letters import Letter, is_letter

MAX_LENGTH = 400
_WRITTEN = re.compile(r"(?:([A-Za-z]\w*)\.)?([A-Za-z]\w*)\[([\w/-]+)\]", re.ASCII)


@dataclass(frozen=True)
class StepPath:
    """`mount` is empty for a step of the study's own protocol."""

    mount: str
    step: str
    label: str

    def __str__(self) -> str:
        name = f"{self.mount}.{self.step}" if self.mount else self.step
        return f"{name}[{self.label}]"

    @staticmethod
    def parse(text: str) -> StepPath:
        """Parse a path. Refuses any spelling but the one that `str` gives."""
        return _parsed(text)


@lru_cache(maxsize=256)
def _parsed(text: str) -> StepPath:
    found = _WRITTEN.fullmatch(text) if len(text) <= MAX_LENGTH else None
    path = None if found is None else StepPath(found[1] or "", found[2], found[3])
    if path is None or str(path) != text:
        raise Malformed(f"{text[:80]!r} is not a path", code="no-step")
    return path


READY = StepPath("run", "ready", "0")
BEGIN = StepPath("run", "begin", "0")
MEET = StepPath("run", "meet", "0")
END = StepPath("run", "end", "0")
ABANDON = StepPath("run", "abandon", "0")


NONCE_BYTES = 32
_MAX_RUN_LENGTH = 200
_MAX_STUDY_LENGTH = 200
# Sizes of common values that are worth caching: shorter ones are decoded sooner than looked up.
_CACHED_BYTES = 256, 1 << 16


@dataclass(frozen=True)
class Ask:
    study: str
    run: str
    path: StepPath
    values: dict[str, Any]
    mail: list[Letter]
    nonce: bytes
    seen: list[Head]

    @classmethod
    def parse(cls, raw: bytes) -> Ask:
        """Parse an ask; Malformed if it has another form."""
        match decode(raw):
            case [str(study), str(run), str(path), bytes(shared), bytes(own), list(mail), bytes(nonce), list(seen)]:
                pass
            case _:
                raise Malformed("an ask has study, run, path, values, mail, a nonce and heads", code="form")
        if not 0 < len(run) <= _MAX_RUN_LENGTH or not run.isascii() or not run.isprintable():
            raise Malformed(f"a run id has 1 to {_MAX_RUN_LENGTH} printable ASCII characters", code="form")
        if len(nonce) != NONCE_BYTES or not are_heads(seen):
            raise Malformed("the nonce or the heads of an ask are not of their form", code="form")
        common, private = _common(shared), decode(own)
        if not isinstance(common, dict) or not isinstance(private, dict) or set(common) & set(private):
            raise Malformed("the values of an ask are named, each once", code="form")
        if not all(map(is_letter, mail)):
            raise Malformed("mail has a receiver, a head, a box, a signature, and perhaps a key", code="form")
        return cls(study, run, StepPath.parse(path), {**common, **private}, mail, nonce, seen)


def study_of(raw: bytes) -> str | None:
    """The study that an ask names, not yet verified: it says which study's coordinator must have signed."""
    return leading_text(raw, most=_MAX_STUDY_LENGTH)


def _common(raw: bytes) -> Value:
    """The values for all parties. Lists of names are the same for each party, and are decoded once per process."""
    if not _CACHED_BYTES[0] <= len(raw) <= _CACHED_BYTES[1]:
        return decode(raw)
    lists = _lists(raw)
    return decode(raw) if lists is None else {name: list(texts) for name, texts in lists}


@lru_cache(maxsize=4)
def _lists(raw: bytes) -> tuple[tuple[str, tuple[str, ...]], ...] | None:
    """The values of an ask where each is a list of texts."""
    value = decode(raw)
    if type(value) is not dict or not all(type(one) is list and set(map(type, one)) <= {str} for one in value.values()):
        return None
    return tuple((name, tuple(texts)) for name, texts in value.items())


def ask_bytes(
    study: str,
    run: str,
    path: str,
    shared: bytes,
    own: bytes,
    mail: Sequence[Letter] | Embedded,
    nonce: bytes,
    seen: Embedded,
) -> bytes:
    """`shared` and `own` are encoded already; `shared` is the same for all parties and is stored once."""
    return encode([study, run, path, shared, own, mail, nonce, seen])
