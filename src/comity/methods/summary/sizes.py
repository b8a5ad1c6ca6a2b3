"""The public sizes of owners and consumer, which the study states, and who plays which part in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comity.errors import StudyError
from comity.federation.declare.consortium import Consortium
from comity.privacy.unit import Neighbours, Unit

OWNER, CONSUMER = "owner", "consumer"
# Sums have room for parties that hold so many times the records that the study says; beyond, they are shrunk. It
# decides how wide the integers are, and moves no noise: a limit of size.
HEADROOM = 2
_KEY = "summary.sizes"


def consumer_of(who: Consortium) -> str:
    """The one consumer; refused where there are none or several, or a party plays no part."""
    found = who.among(CONSUMER) if CONSUMER in who.roles else ()
    if len(found) != 1:
        raise StudyError(
            f"summary serves one consumer, and {len(found)} parties have that role; set [parties.NAME] "
            'role = "consumer" for one of them',
            key="parties",
        )
    idle = [party for party in who.parties if not who.includes((OWNER, CONSUMER), party)]
    if idle:
        raise StudyError(
            f'{idle[0]!r} has no role; set [parties.{idle[0]}] role = "owner" if it has records to hand over, or '
            '"consumer"',
            key="parties",
        )
    both = [party for party in found if party in who.roles.get(OWNER, ())]
    if both or len(who.among(OWNER)) < 1:
        raise StudyError("summary needs owners beside its consumer, who is none of them; add parties", key="parties")
    return str(found[0])


def checked_sizes(sizes: Mapping[str, int] | None, who: Consortium) -> Mapping[str, int]:
    """A number of records for every party. Under replacement it is public; what a site counts is not used."""
    if not sizes:
        raise StudyError(
            "summary.sizes is missing: the study must state how many records each owner and the consumer have; add "
            "[summary.sizes] with a line NAME = COUNT for each",
            key=_KEY,
        )
    for party, size in sizes.items():
        count: Any = size
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 1 << 40:
            raise StudyError(f"{_KEY}.{party} must be a whole number of at least 1, found {count!r}", key=_KEY)
    absent = [party for party in who.parties if party not in sizes]
    unknown = [party for party in sizes if not who.knows(party)]
    if absent or unknown:
        wrong = f"no size for {absent[0]!r}" if absent else f"a size for {unknown[0]!r}, which is no party of the study"
        raise StudyError(f"{_KEY} has {wrong}; give one for each party of the study", key=_KEY)
    return sizes


def check_terms(who: Consortium, sizes: Mapping[str, int] | None, records: int) -> None:
    """Refuse terms on which no form of the method holds; `records` is how many the owners are to hand over."""
    if who.unit is not Unit.RECORD:
        raise StudyError(
            f'summary protects a record; found privacy.unit = "{who.unit}". Set privacy.unit = "record"',
            key="privacy.unit",
        )
    if who.neighbours is not Neighbours.REPLACE:
        raise StudyError(
            f'summary protects records that are replaced; found privacy.neighbours = "{who.neighbours}". Set '
            'privacy.neighbours = "replace": sizes are public, because quotas are capped by them',
            key="privacy.neighbours",
        )
    consumer_of(who)
    known = checked_sizes(sizes, who)
    held = sum(known[party] for party in who.among(OWNER))
    if records > held:
        raise StudyError(
            f"summary.records = {records} is more than the owners have, {held} by summary.sizes; lower it",
            key="summary.records",
        )
