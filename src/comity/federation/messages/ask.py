"""An ask as bytes: study, run, path, values for all and for one party, mail, the journal's nonce, heads that were seen.

The nonce binds a run to one journal: a site takes it at the beginning and refuses asks of another, because a
coordinator without its memory would draw its own noise a second time and show other lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from comity.errors import Malformed
from comity.federation.messages.codec import Embedded, Value, decode, encode, leading_text
from comity.federation.messages.heads import Head, are_heads
from comity.federation.messages.letters import Letter, is_letter
from comity.federation.messages.paths import StepPath

NONCE_BYTES = 32
_MOST_RUN = 200
_MOST_STUDY = 200
# Bytes of common values that may be lists of many names: shorter ones are read sooner than looked up.
_ROLLS = 256, 1 << 16


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
        """What the coordinator asks, if it is written as asks are."""
        match decode(raw):
            case [str(study), str(run), str(path), bytes(shared), bytes(own), list(mail), bytes(nonce), list(seen)]:
                pass
            case _:
                raise Malformed("an ask has study, run, path, values, mail, a nonce and heads", code="form")
        if not 0 < len(run) <= _MOST_RUN or not run.isascii() or not run.isprintable():
            raise Malformed(f"a run id has 1 to {_MOST_RUN} printable ASCII characters", code="form")
        if len(nonce) != NONCE_BYTES or not are_heads(seen):
            raise Malformed("the nonce or the heads of an ask are not of their form", code="form")
        common, private = _common(shared), decode(own)
        if not isinstance(common, dict) or not isinstance(private, dict) or set(common) & set(private):
            raise Malformed("the values of an ask are named, each once", code="form")
        if not all(map(is_letter, mail)):
            raise Malformed("mail has a receiver, a head, a box, a signature, and perhaps a key", code="form")
        return cls(study, run, StepPath.parse(path), {**common, **private}, mail, nonce, seen)


def study_of(raw: bytes) -> str | None:
    """The study that an ask names, which nobody has verified: it says whose verification to try."""
    return leading_text(raw, most=_MOST_STUDY)


def _common(raw: bytes) -> Value:
    """What all parties get. Lists of names are the same bytes for each of those in this process, and are read once."""
    if not _ROLLS[0] <= len(raw) <= _ROLLS[1]:
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
    """`shared` and `own` are encoded already: the first is the same for all parties and is written down once."""
    return encode([study, run, path, shared, own, mail, nonce, seen])
