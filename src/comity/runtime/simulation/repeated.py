"""The same study again with fresh simulated noise: records are prepared once, and nothing but figures is kept.

A method whose parties can run as stacks repeats without hosts and masks, and sums that depend on the records alone are
computed once; any other repeats with hosts in memory. The noise is drawn by the fast source of simulations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import Records
from comity.entropy import derive
from comity.errors import StudyError
from comity.federation.assessment import Assessment
from comity.federation.declaring.consortium import Consortium
from comity.federation.protocol import Protocol
from comity.federation.repeats import Repeats
from comity.learn.voters.local_model import LocalModel
from comity.privacy.ledger import Ledger
from comity.privacy.sampling.seeded_draws import SeededDraws
from comity.runtime.local.cohort import Blocks, Cohort
from comity.runtime.local.stacks import require_no_evaluation, require_stacks

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


def can_stack(protocol: Protocol, who: Consortium, local: Mapping[str, LocalModel]) -> bool:
    """Whether all parties of a run can be stacked, with at most one local model for all of them."""
    if local and (len(set(map(id, local.values()))) > 1 or len(local) < who.size):
        return False
    try:
        require_stacks(protocol, protocol.accepted(who))
        require_no_evaluation(who)
    except StudyError:
        return False
    return True


def repeated(
    protocol: Protocol,
    who: Consortium,
    test: Records,
    *,
    count: int,
    secret: bytes,
    blocks: Blocks,
    local: Mapping[str, LocalModel],
    with_hosts: Callable[[int], Mapping[str, Any]],
    whole: bool = True,
) -> Repeats:
    """Stacks need records that are `whole`, in memory; `with_hosts(seed)` releases by hosts what a method that can't be
    stacked releases."""
    stacked = whole and can_stack(protocol, who, local)
    known: dict[str, tuple[NDArray[np.int64], int]] = {}
    found: list[Assessment] = []
    for number in range(count):
        root = derive(secret, "repeat", str(number))
        if stacked:
            ledger = Ledger.in_memory(unit=who.unit, neighbours=who.neighbours)
            cohort = Cohort(
                protocol,
                who,
                blocks=blocks,
                noise=SeededDraws(root),
                ledger=ledger,
                study="repeat",
                run=f"repeat-{number}",
                local=next(iter(local.values()), None),
                known=known,
            )
            released: Mapping[str, Any] = cohort.released()
        else:
            released = with_hosts(int.from_bytes(root[:7], "big"))
        found.append(protocol.assess(protocol.present(released, who), None, test))
    return Repeats.of(WITHOUT_MASKS if stacked else WITH_HOSTS, found)
