"""Who is protected, and what it means for two datasets to be neighbours."""

from __future__ import annotations

from enum import StrEnum


class Unit(StrEnum):
    """Who one unit of privacy is: changing everything that this unit contributed gives a neighbour."""

    RECORD = "record"
    PERSON = "person"
    PARTY = "party"


class Neighbours(StrEnum):
    """How two neighbouring datasets differ: one unit is replaced (sizes are public), or one is there or not."""

    REPLACE = "replace"
    ADD_REMOVE = "add-remove"
