"""Names of parties: what one may look like, and when two of them are the same.

A name is compared with others by people and by programs: in a plan, in an owner's list of pinned keys, in certificates,
subjects and file names. A name that only looks like a pinned one would pass that pin. Names are therefore plain ASCII,
and two names that differ in the case of letters alone are the same name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from comity.errors import StudyError

MAX_NAME_LENGTH = 32
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{MAX_NAME_LENGTH - 1}}}", re.ASCII)


def is_party_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def fold(name: str) -> str:
    """The form in which names are compared. Names are ASCII, where lower case is the whole of case folding."""
    return name.lower()


def check_party_name(name: object, *, key: str = "parties") -> str:
    """The name, if a party may have it."""
    if not is_party_name(name):
        raise StudyError(
            f"the name of a party has 1 to {MAX_NAME_LENGTH} characters, which are letters of a to z, digits, - and _, "
            f"and begins with a letter or digit; found {ascii(name)[:80]}, rename that party",
            code="name",
            key=key,
        )
    assert isinstance(name, str)
    return name


def check_party_names(names: Iterable[object], *, key: str = "parties") -> None:
    """Refuses a name that no party may have, and two that are the same or differ in case alone."""
    known: dict[str, str] = {}
    for one in names:
        name = check_party_name(one, key=key)
        other = known.get(fold(name))
        if other is not None:
            raise StudyError(
                f"{other!r} and {name!r} are the same name: upper and lower case are not told apart; rename one party",
                code="name",
                key=key,
            )
        known[fold(name)] = name
