"""What a site does to its records before anything is summed: without it the declared sensitivity would not hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comity.data import Records
from comity.errors import Stopped
from comity.federation.coordinator.lifecycle import run
from comity.learn.fits import Fit
from comity.learn.record_sum import from_upper_triangle
from comity.methods.averaging import Averaging, AveragingProtocol
from comity.methods.averaging import method as averaging_method
from tests.averaging.default_consortium import make_consortium
from tests.averaging.default_consortium import parties as joined
from tests.support.consortia import NAMES

WIDTH, LENGTH = 3, 100.0


def built(**options: Any) -> AveragingProtocol:
    return Averaging.over_rows(features=WIDTH, sizes=20, **options)


def long_rows(length: Any) -> Records:
    generator = np.random.default_rng(4)
    rows = generator.normal(size=(20, WIDTH))
    rows *= length / np.linalg.norm(rows, axis=1, keepdims=True)
    return Records(rows, generator.integers(0, 2, 20))


def hosted(method: Any, length: Any) -> Any:
    return joined(method, {name: long_rows(length) for name in NAMES[:3]}, make_consortium(parties=3))


def opened(method: Any, length: Any, step: Any) -> Any:
    """What the coordinator opens of parties whose rows all have one length."""
    parties, _ = hosted(method, length)
    totals: dict[Any, Any] = {}
    sums = parties.sum

    def recorded(asked: Any, **values: Any) -> Any:
        totals.setdefault(asked.spec.name, sums(asked, **values))
        return totals[asked.spec.name]

    parties.sum = recorded
    run(parties)
    return totals[step].value


@pytest.mark.parametrize("step", ["second_moment", "whitened_moment", "gradient", "calibration"])
def test_rows_longer_than_one_count_as_rows_of_length_one(step: str) -> None:
    np.testing.assert_allclose(
        opened(built(rounds=1), LENGTH, step), opened(built(rounds=1), 1.0, step), rtol=1e-3, atol=1e-2
    )
    if step == "second_moment":
        assert np.trace(from_upper_triangle(opened(built(rounds=1), LENGTH, step)[:-1], WIDTH)) == pytest.approx(
            60, rel=0.01
        )


def test_local_models_are_fitted_to_rows_of_length_one() -> None:
    method = built(solver="average", l2=0.1)
    np.testing.assert_allclose(opened(method, LENGTH, "train"), opened(method, 1.0, "train"), atol=1e-3)


def test_a_fit_that_does_not_converge_stops_before_a_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    method = built(solver="average", l2=0.1)
    parties, hosts = hosted(method, 1.0)
    loss = method.objective

    class Unfinished:
        def __getattr__(self, name: Any) -> Any:
            return getattr(loss, name)

        def fit(self, x: Any, y: Any, l2: Any) -> Fit:
            return Fit(np.zeros(WIDTH), np.asarray(1.0), 1e-10)

    monkeypatch.setattr(averaging_method, "objective_of", lambda *arguments: Unfinished())
    with pytest.raises(Stopped):
        run(parties)
    assert not [entry for host in hosts.values() for entry in host.store.ledger.entries() if entry.kind == "draw"]


@pytest.mark.parametrize("solver", ["gradient", "average"])
def test_a_failure_stops_a_party_whose_bound_is_about_one_record(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The neutral value would be as far away as all of its records together."""
    method = built(solver=solver, l2=None if solver == "gradient" else 0.1, rounds=1 if solver == "gradient" else None)
    parties, hosts = hosted(method, 1.0)

    def broken(*arguments: Any) -> None:
        raise FloatingPointError

    monkeypatch.setattr(averaging_method, "unit_columns" if solver == "gradient" else "in_unit_ball", broken)
    with pytest.raises(Stopped):
        run(parties)
    assert not [entry for host in hosts.values() for entry in host.store.ledger.entries() if entry.kind == "draw"]


@pytest.mark.parametrize("solver", ["gradient", "average"])
@pytest.mark.parametrize(
    ("neighbours", "sizes", "told"),
    [
        ("replace", 20, False),
        ("replace", 41, True),
        ("replace", 40, False),
        ("replace", 9, True),
        ("add-remove", 20, False),
        ("add-remove", 21, True),
    ],
)
def test_an_owner_is_told_once_that_its_count_is_far_from_the_declared_one(
    caplog: pytest.LogCaptureFixture, solver: Any, neighbours: str, sizes: int, told: bool
) -> None:
    rounds: dict[str, Any] = {"rounds": 3} if solver == "gradient" else {}
    method = Averaging.over_rows(features=WIDTH, sizes=sizes, solver=solver, **rounds)
    consortium = make_consortium(parties=3, neighbours=neighbours)
    joint, _ = joined(method, {name: long_rows(1.0) for name in consortium.parties}, consortium)
    with caplog.at_level("WARNING", logger="comity.site"):
        run(joint)
    lines = [record.getMessage() for record in caplog.records if "averaging.sizes" in record.getMessage()]
    assert len(lines) == (3 if told else 0)
    assert all(str(sizes) in line and "there are 20" in line for line in lines)
    # It stays in the log: nothing that crossed says a word of it.
    traffic = joint.journal.traffic(joint.study, joint.run)
    crossed = [one.reply for _, exchanges in traffic for one in exchanges.values()]
    assert crossed and not any(b"averaging.sizes" in (reply or b"") for reply in crossed)
