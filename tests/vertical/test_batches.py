"""What a step makes of a record does not depend on the records beside it, whatever was received."""

from __future__ import annotations

import pytest

from tests.attacks.received_values import Case, cases_of, worst


@pytest.mark.parametrize("case", cases_of("RlweRounds", "DealerRounds", "ErrorsByColumns"), ids=lambda case: case.name)
def test_no_record_changes_the_part_of_another_whatever_was_received(case: Case) -> None:
    assert worst(case) <= 1
