"""Repeats of a study with fresh simulated noise: records are prepared once, and nothing but figures is kept.

A method whose parties can run as stacks repeats without hosts and masks, and sums that depend on the records alone are
computed once; any other repeats with hosts in memory. The noise is drawn by the fast source of simulations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.artefacts.artefact import Artefact
from comity.entropy import derive
from comity.errors import StudyError
from comity.federation.agreement import Agreement
from comity.federation.evaluation.assessment import Assessment, Repeats
from comity.learn.local_models import LocalModel
from comity.privacy.randomness import SeededDraws
from comity.study.local.cohort import Cohort, stack_parties
from comity.study.local.consortium import LocalConsortium, new_run_id, secret_of
from comity.study.local.stacks import require_stacks
from comity.study.records.party_data import PartyData
from comity.study.simulation.ledgers import ledgers_in_memory

WITHOUT_MASKS = "stacks of parties, without masks"
WITH_HOSTS = "a host for each party"
MAX_REPEATS = 10_000


def check_repeats(repeats: int, tested: bool) -> None:
    """Refuse a count that can't be run, before anything is spent."""
    if isinstance(repeats, bool) or not 0 <= repeats <= MAX_REPEATS:
        raise StudyError(f"repeats must be a whole number from 0 to {MAX_REPEATS}, found {repeats}", key="repeats")
    if repeats and not tested:
        raise StudyError(
            "repeats measure a result on test records, and there are none; give test records, or leave repeats out",
            key="repeats",
        )


def can_stack(agreement: Agreement, local: Mapping[str, LocalModel]) -> bool:
    """Whether all parties of a run can be stacked, with at most one local model for all of them."""
    if local and (len(set(map(id, local.values()))) > 1 or len(local) < agreement.consortium.size):
        return False
    try:
        require_stacks(agreement.protocol, agreement.accepted, agreement.consortium)
    except StudyError:
        return False
    return True


def repeat_simulation(agreement: Agreement, data: PartyData, *, count: int, seed: int | None) -> Repeats:
    """Run so many times more, and measure each on the test records."""
    assert data.test is not None
    protocol, consortium, secret = agreement.protocol, agreement.consortium, secret_of(seed)
    stacked = data.in_memory is not None and can_stack(agreement, data.models)
    released = _by_stacks(agreement, data) if stacked else _by_hosts(agreement, data)
    assessments: list[Assessment] = []
    for number in range(count):
        values, own = released(number, derive(secret, "repeat", str(number)))
        found = protocol.assess(protocol.present(values, consortium), None, data.test)
        assessments.append(protocol.assess_own(found, own, data.test) if protocol.assesses_own else found)
    return Repeats.of(WITHOUT_MASKS if stacked else WITH_HOSTS, assessments)


Released = Callable[[int, bytes], tuple[Mapping[str, Any], Mapping[str, Mapping[str, Artefact]]]]
"""What the repeat of this number releases, with noise from this secret; what owners keep, where that is assessed."""


def _by_stacks(agreement: Agreement, data: PartyData) -> Released:
    records, known = list(data.parties.values()), dict[str, tuple[NDArray[np.int64], int]]()
    ledgers, consortium = ledgers_in_memory(agreement), agreement.consortium

    def released(number: int, secret: bytes) -> tuple[Mapping[str, Any], Mapping[str, Mapping[str, Artefact]]]:
        cohort = Cohort(
            agreement.protocol,
            consortium,
            blocks=lambda most: stack_parties(records, most),
            noise=SeededDraws(secret),
            ledger=ledgers(consortium.parties[0]),
            study="repeat",
            run=f"repeat-{number}",
            local=next(iter(data.models.values()), None),
            known=known,
        )
        return cohort.execute(), {}

    return released


def _by_hosts(agreement: Agreement, data: PartyData) -> Released:
    def released(_: int, secret: bytes) -> tuple[Mapping[str, Any], Mapping[str, Mapping[str, Artefact]]]:
        local = LocalConsortium.create(
            agreement,
            data.parties,
            run=new_run_id(),
            ledgers=ledgers_in_memory(agreement),
            seed=int.from_bytes(secret[:7], "big"),
            models=data.models,
        )
        values, _kept = local.execute()
        return values, local.present_own() if agreement.protocol.assesses_own else {}

    return released
