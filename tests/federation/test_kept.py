"""What a run paid for is kept as its receivers got it, also when the run is killed before its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comity.federation.coordinator.lifecycle import execute
from comity.federation.declare.protection import Noised, Summed
from comity.federation.messages.received import is_kept
from tests.support.noise import NoNoise
from tests.support.rounds import Rounds, set_up_run


@pytest.mark.parametrize("protection", [Summed, Noised])
def test_sums_values_on_the_way_and_results_are_kept(protection: Any) -> None:
    parties, _ = set_up_run(Rounds(protection=protection), noise=NoNoise())
    released, kept = execute(parties)
    declared = parties.declaration
    assert {*kept, *released} == {release.name for release in declared.releases if is_kept(release)}
    assert len(kept["slope"]) == len(kept["centre"]) == 2
    if protection is Summed:
        assert kept["mean"]["parties"] == 5
        np.testing.assert_allclose(kept["mean"]["sum"] / 5, kept["centre"][0])
    else:
        grid = declared["mean"].spacing(parties.consortium)
        assert list(kept["mean"]) == list(parties.consortium.parties)
        np.testing.assert_allclose(sum(kept["mean"].values()) * grid / 5, kept["centre"][0])


def test_masked_vectors_are_not_kept() -> None:
    parties, _ = set_up_run()
    _, kept = execute(parties)
    assert set(kept) == {"mean", "centre", "slope"}


def test_a_run_that_is_run_again_finds_them(tmp_path: Path) -> None:
    parties, hosts = set_up_run(folder=tmp_path)
    first = execute(parties)
    again = execute(set_up_run(folder=tmp_path, hosts=hosts)[0])
    for name, value in first[1].items():
        np.testing.assert_equal(again[1][name], value)
