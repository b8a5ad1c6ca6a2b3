"""On which terms soft labels are learned, by either variant."""

from __future__ import annotations

from collections.abc import Sequence

from comity.errors import StudyError
from comity.federation.declare.consortium import Consortium
from comity.privacy.unit import Neighbours, Unit


def check_terms(who: Consortium) -> None:
    """Refuse a unit that the proofs do not cover, before anything is reserved."""
    if who.unit is not Unit.PARTY or who.neighbours is not Neighbours.REPLACE:
        raise StudyError(
            f"softlabel protects a whole party, replaced; found unit = {who.unit}, neighbours = {who.neighbours}. "
            'Set privacy.unit = "party" and privacy.neighbours = "replace"',
            key="privacy.unit" if who.unit is not Unit.PARTY else "privacy.neighbours",
        )


def check_classes(classes: Sequence[str]) -> None:
    if len(classes) < 2:
        raise StudyError(
            "soft labels need a target of at least two classes; declare [target] classes in the schema", key="target"
        )
