"""The known name that a mistyped one most resembles, for sentences that say what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

# Of the letters of both names together, the share that must agree. With less, a word is suggested that nobody meant:
# "delta" for "data".
_ALIKE = 0.75
_BEGINNING = 3


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, whatever its case, or one that is its beginning or begins with it; None if
    nothing is like it."""
    by_lower: dict[str, str] = {}
    for candidate in known:
        by_lower.setdefault(candidate.lower(), candidate)
    lower = name.lower()
    match = get_close_matches(lower, list(by_lower), n=1, cutoff=_ALIKE)
    if not match and len(lower) >= _BEGINNING:
        match = [other for other in by_lower if other.startswith(lower) or lower.startswith(other + "_")][:1]
    return by_lower[match[0]] if match else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """'; did you mean ...?' followed by the known names, or these alone."""
    names = list(known)
    match = nearest(name, names)
    listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    guess = f"; did you mean {match!r}?" if match else "."
    return f"{guess} Known here: {listed or 'nothing'}."
