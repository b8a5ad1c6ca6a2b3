"""A suggestion is made where somebody may have meant it."""

from __future__ import annotations

import pytest

from comity.errors import nearest_name

KNOWN = ("data", "split", "sizes", "epsilon", "delta", "colluders", "dropouts", "records_per_party")


@pytest.mark.parametrize(
    ("found", "meant"),
    [
        ("Epsilon", "epsilon"),
        ("epsilom", "epsilon"),
        ("eps", "epsilon"),
        ("colluder", "colluders"),
        ("dta", "data"),
        ("sizes_each", "sizes"),
        ("record_per_party", "records_per_party"),
    ],
)
def test_a_slip_is_recognised(found: str, meant: str) -> None:
    assert nearest_name(found, KNOWN) == meant


@pytest.mark.parametrize("found", ["lambda", "date", "slip", "prices", "alpha", "e", "", "dropped"])
def test_another_word_is_not(found: str) -> None:
    assert nearest_name(found, [name for name in KNOWN if name != "data"]) is None
