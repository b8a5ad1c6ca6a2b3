"""What a step makes of a record does not depend on the records beside it, whatever was received."""

from __future__ import annotations

import numpy as np
import pytest

from tests.attacks.received_values import Batch, Case, added, averaging, batch, cases_of, worst


@pytest.mark.parametrize("case", cases_of("AveragingProtocol"), ids=lambda case: case.name)
def test_no_record_changes_the_part_of_another_whatever_was_received(case: Case) -> None:
    assert worst(case) <= 1


def test_received_values_that_are_out_of_range_count_as_its_end() -> None:
    rows, labels = batch(30, 5)
    built = averaging(5, "logistic")
    sums = []
    for scale in (2.0**30, 1e300):
        site = Batch(added(), "ash", rows, labels % 2)
        whitening = np.zeros((1, 51))
        whitening[0, :6] = [scale, *(scale * rows[0])]
        iterate = np.full((1, 5), scale) * np.sign(rows[0])
        built.gradient(site, iterate, whitening)  # type: ignore[arg-type]
        sums.append(site.sent)
    np.testing.assert_array_equal(sums[0], sums[1])
