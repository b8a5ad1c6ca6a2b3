"""The same study again with fresh simulated noise: records are prepared once, and nothing but figures is kept.

A method whose parties can run as stacks repeats without hosts and masks, and sums that depend on the records alone are
computed once; any other repeats with hosts in memory. The noise is drawn by the fast source of simulations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.entropy import derive
from comity.errors import StudyError
from comity.federation.agreement import Agreement
from comity.federation.declare.consortium import Consortium
from comity.federation.evaluation.assessment import Assessment, Repeats
from comity.federation.protocol import Protocol
from comity.learn.local_models import LocalModel
from comity.privacy.randomness import SeededDraws
from comity.study.local.chance import new_run_id, secret_of
from comity.study.local.cohort import Cohort, stacks
from comity.study.local.consortium import LocalConsortium
from comity.study.local.stacks import require_no_evaluation, require_stacks
from comity.study.records.material import Material
from comity.study.simulation.ledgers import in_memory

WITHOUT_MASKS = "stacks of parties, without masks"
WITH_HOSTS = "a host for each party"
MOST = 10_000


def check_repeats(repeats: int, tested: bool) -> None:
    """Before anything is spent."""
    if isinstance(repeats, bool) or not 0 <= repeats <= MOST:
        raise StudyError(f"repeats must be a whole number from 0 to {MOST}, found {repeats}", key="repeats")
    if repeats and not tested:
        raise StudyError(
            "repeats measure a result on test records, and there are none; give test records, or leave repeats out",
            key="repeats",
        )


def can_stack(protocol: Protocol, consortium: Consortium, local: Mapping[str, LocalModel]) -> bool:
    """Whether all parties of a run can be stacked, with at most one local model for all of them."""
    if local and (len(set(map(id, local.values()))) > 1 or len(local) < consortium.size):
        return False
    try:
        require_stacks(protocol, protocol.accepted(consortium), consortium)
        require_no_evaluation(consortium)
    except StudyError:
        return False
    return True


def repeated(agreed: Agreement, material: Material, *, count: int, seed: int | None) -> Repeats:
    """The figures of so many further runs on the test records."""
    assert material.test is not None
    protocol, consortium, secret = agreed.protocol, agreed.consortium, secret_of(seed)
    stacked = material.whole is not None and can_stack(protocol, consortium, material.models)
    released = _by_stacks(agreed, material) if stacked else _by_hosts(agreed, material)
    found: list[Assessment] = []
    for number in range(count):
        values = released(number, derive(secret, "repeat", str(number)))
        found.append(protocol.assess(protocol.present(values, consortium), None, material.test))
    return Repeats.of(WITHOUT_MASKS if stacked else WITH_HOSTS, found)


Released = Callable[[int, bytes], Mapping[str, Any]]
"""What the repeat of this number releases, with noise from this secret."""


def _by_stacks(agreed: Agreement, material: Material) -> Released:
    records, known = list(material.parties.values()), dict[str, tuple[NDArray[np.int64], int]]()
    ledgers, consortium = in_memory(agreed), agreed.consortium

    def released(number: int, secret: bytes) -> Mapping[str, Any]:
        cohort = Cohort(
            agreed.protocol,
            consortium,
            blocks=lambda most: stacks(records, most),
            noise=SeededDraws(secret),
            ledger=ledgers(consortium.parties[0]),
            study="repeat",
            run=f"repeat-{number}",
            local=next(iter(material.models.values()), None),
            known=known,
        )
        return cohort.released()

    return released


def _by_hosts(agreed: Agreement, material: Material) -> Released:
    def released(_: int, secret: bytes) -> Mapping[str, Any]:
        consortium = LocalConsortium.made(
            agreed,
            material.parties,
            run=new_run_id(),
            ledgers=in_memory(agreed),
            seed=int.from_bytes(secret[:7], "big"),
            models=material.models,
        )
        return consortium.execute()[0]

    return released
