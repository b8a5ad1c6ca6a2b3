"""Stacks of parties give what single sites give, with the memory of one stack."""

from __future__ import annotations

import resource
from typing import Any

import numpy as np
import pytest

from comity.data import Records
from comity.errors import BudgetExceeded, Refused
from comity.federation.coordinator.lifecycle import run as run_parties
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.protection import Noised
from comity.privacy.ledger import Ledger
from comity.privacy.loss import ZCDP, Approx
from comity.privacy.randomness import SeededNoise
from comity.privacy.unit import Neighbours, Unit
from comity.study.local.cohort import Cohort, stack_parties
from comity.study.local.stacks import NumberedParties
from tests.support.noise import NoNoise
from tests.support.rounds import Rounds, set_up_run


def cohort(protocol: Any, records: Any, noise: Any = None, names: Any = None, **ledger: Any) -> Cohort:
    consortium = Consortium(
        parties=names or NumberedParties(len(records)),
        loss=ZCDP(0.15),
        unit=Unit.RECORD,
        neighbours=Neighbours.REPLACE,
        colluders=1,
        dropouts=min(1, len(records) - 2),
    )
    book = Ledger.in_memory(unit=consortium.unit, neighbours=consortium.neighbours, **ledger)
    return Cohort(
        protocol,
        consortium,
        blocks=lambda most: stack_parties(records, min(most, 2)),
        noise=noise or SeededNoise(1),
        ledger=book,
        study="study",
        run="run-1",
    )


@pytest.mark.parametrize("protection", [Noised, Rounds().protection])
def test_a_cohort_equals_real_sites_without_noise(protection: Any) -> None:
    protocol = Rounds(protection=protection)
    parties, hosts = set_up_run(protocol, noise=NoNoise())
    real = run_parties(parties)["result"]
    records = [host.records for host in hosts.values()]
    stacked = cohort(protocol, records, NoNoise(), names=tuple(hosts)).execute()["result"]
    np.testing.assert_array_equal(stacked, real)


def test_the_shared_noise_of_a_cohort_has_the_variance_of_all_parts() -> None:
    protocol = Rounds(rounds=0)
    records = [Records(np.zeros((1, 3)))] * 40
    one = cohort(protocol, records)
    scale = one.declaration["mean"].scale(one.consortium)
    draws = np.concatenate([cohort(protocol, records, SeededNoise(i)).sum(protocol.average).value for i in range(300)])
    expected = scale.part * scale.grid * np.sqrt(40)
    assert abs(draws.std() / expected - 1) < 0.15  # 900 draws: six standard errors


def test_one_ledger_line_per_draw_for_the_whole_cohort_and_a_refusal_before_the_first() -> None:
    protocol = Rounds()
    records = [Records(np.zeros((2, 3)))] * 7
    run = cohort(protocol, records)
    run.execute()
    kinds = [entry.kind for entry in run.ledger.entries()]
    assert kinds.count("draw") == 3 and kinds.count("reserve") == 3 and kinds[-1] == "close"
    with pytest.raises(BudgetExceeded):
        cohort(protocol, records, grant=Approx(0.5, 1e-6))


def test_parties_of_unequal_size_are_padded_and_marked() -> None:
    records = [Records(np.ones((n, 2)), np.arange(n)) for n in (3, 0, 1)]
    features, labels, present = next(iter(stack_parties(records, 10)))
    assert features.shape == (3, 3, 2) and present.sum(1).tolist() == [3, 0, 1]
    assert labels[0].tolist() == [0, 1, 2] and features[1].sum() == 0


def test_a_cohort_draws_no_more_than_declared() -> None:
    protocol = Rounds(rounds=1)
    run = cohort(protocol, [Records(np.zeros((2, 3)))] * 4)
    run.sum(protocol.average)
    with pytest.raises(Refused):
        run.sum(protocol.average)


def test_names_of_a_million_parties_take_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    names = NumberedParties(1_000_000)
    assert "p999999" in names and "p1000000" not in names and "q1" not in names and names[17] == "p17"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 5_000
