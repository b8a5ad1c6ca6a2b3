"""A coordinator that ends anywhere in a run and comes back: the same model, and no noise drawn twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from comity.crypto.products.fixed_point import join_shares
from comity.federation.coordinator.lifecycle import run
from tests.support.published import build_published

from .published_consortium import Interrupted, Meeting, Mortal, QuickKeys

SIZES = (30, 20, 40)


def asks_of_a_run() -> int:
    room = Meeting(build_published(QuickKeys, width=3, l2=0.1, noise="spherical"), SIZES)
    channel = Mortal(room.hosts)
    run(room.parties(channel))
    return channel.calibrations


def ended_and_resumed(room: Meeting, die_at: int, *, after: bool) -> np.ndarray:
    with pytest.raises(Interrupted):
        run(room.parties(Mortal(room.hosts, die_at, after=after)))
    return join_shares(list(run(room.parties())["shares"].values()))


def whole(room: Meeting) -> np.ndarray:
    (noise,) = room.noises["birch"].drawn
    found: np.ndarray = room.exact() + noise
    return found


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("die_at", [6, 17, 19, 21])
def test_a_coordinator_that_ended_goes_on(die_at: int, after: bool) -> None:
    room = Meeting(build_published(QuickKeys, width=3, l2=0.1, noise="spherical"), SIZES)
    np.testing.assert_array_equal(ended_and_resumed(room, die_at, after=after), whole(room))
    assert all(len(noise.drawn) == 1 for noise in room.noises.values())
    assert all(room.spent(name) == 1.0 for name in room.consortium.parties)


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
def test_a_coordinator_may_end_before_or_after_any_ask(after: bool) -> None:
    # The last ask ends the run at the sites; whatever happens there, the model is journalled already.
    for die_at in range(asks_of_a_run() - 1):
        room = Meeting(build_published(QuickKeys, width=3, l2=0.1, noise="spherical"), SIZES)
        np.testing.assert_array_equal(ended_and_resumed(room, die_at, after=after), whole(room))
        assert all(len(noise.drawn) == 1 for noise in room.noises.values())


def test_sites_that_ended_too_go_on_from_their_files(tmp_path: Path) -> None:
    room = Meeting(build_published(QuickKeys, width=3, l2=0.1, noise="spherical"), SIZES, folder=tmp_path)
    with pytest.raises(Interrupted):
        run(room.parties(Mortal(room.hosts, 18)))
    room.open_sites()
    np.testing.assert_array_equal(join_shares(list(run(room.parties())["shares"].values())), whole(room))
    assert all(len(noise.drawn) == 1 for noise in room.noises.values())


def test_a_finished_run_gives_the_same_shares_again() -> None:
    room = Meeting(build_published(QuickKeys, width=3, l2=0.1, noise="spherical"), SIZES)
    first, again = (run(room.parties())["shares"] for _ in range(2))
    for name, share in first.items():
        np.testing.assert_array_equal(share, again[name])
