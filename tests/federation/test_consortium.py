"""How many parties are taken for colluders where nobody says."""

from __future__ import annotations

from comity.federation.declaring.consortium import usual_colluders


def test_whoever_is_left_alone_has_nobody_to_collude_with() -> None:
    assert [usual_colluders(parties, dropouts) for parties, dropouts in ((1, 0), (2, 0), (2, 1), (3, 1))] == [
        0,
        1,
        0,
        1,
    ]
