"""Who may speak where. Each party has two subjects; there is no third, no wildcard and no inbox.

The relay enforces this (`configuration`); nothing here does.
"""

from __future__ import annotations

import re

from comity.errors import BadInput

COORDINATOR = "coordinator"
RELAY = "relay"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", re.ASCII)


def checked_name(name: str) -> str:
    """A member's name, which stands in subjects, in certificates and in file names: what means anything special in one
    of them can't be part of it."""
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"a member's name has 1 to 32 letters, digits, - and _, and begins with a letter or digit; found {name!r}",
            code="name",
            key="party",
        )
    return name


def checked_party(name: str) -> str:
    """A name that a party may have: the coordinator's and the relay's are theirs in any case of letters, because file
    systems differ in whether they tell one from the other."""
    if checked_name(name).lower() in (COORDINATOR, RELAY):
        raise BadInput(f"{name!r} is no name for a party; choose another", code="name", key="party")
    return name


def ask_subject(party: str) -> str:
    """Where the coordinator asks `party`: it alone publishes here, the party alone listens."""
    return f"comity.ask.{party}"


def reply_subject(party: str) -> str:
    """Where `party` replies: it alone publishes here, the coordinator alone listens."""
    return f"comity.reply.{party}"
