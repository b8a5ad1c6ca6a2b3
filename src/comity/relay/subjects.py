"""Who may speak where. Each party has two subjects; there is no third, no wildcard and no inbox.

The relay enforces this (`configuration`); nothing here does.
"""

from __future__ import annotations

from comity.errors import BadInput
from comity.federation.declare.consortium import MAX_NAME_LENGTH, fold, is_party_name

COORDINATOR = "coordinator"
RELAY = "relay"


def checked_name(name: str) -> str:
    """A member's name, which stands in subjects, in certificates and in file names: what means anything special in one
    of them can't be part of it."""
    if not is_party_name(name):
        raise BadInput(
            f"a member's name has 1 to {MAX_NAME_LENGTH} letters of a to z, digits, - and _, and begins with a letter "
            f"or digit; found {ascii(name)[:80]}",
            code="name",
            key="party",
        )
    return name


def checked_party(name: str) -> str:
    """A name that a party may have: the coordinator's and the relay's are theirs in any case of letters, because file
    systems differ in whether they tell one from the other."""
    if fold(checked_name(name)) in (COORDINATOR, RELAY):
        raise BadInput(f"{name!r} is no name for a party; choose another", code="name", key="party")
    return name


def ask_subject(party: str) -> str:
    """Where the coordinator asks `party`: it alone publishes here, the party alone listens."""
    return f"comity.ask.{party}"


def reply_subject(party: str) -> str:
    """Where `party` replies: it alone publishes here, the coordinator alone listens."""
    return f"comity.reply.{party}"
