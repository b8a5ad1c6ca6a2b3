"""An owner with a program of its own: it sends other values than the study lets it send, properly masked and signed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from comity.crypto.sealing import Identity
from comity.data import LocalRecords
from comity.entropy import derive
from comity.federation.agreement import Agreement
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Bound
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.policy import SIMULATION
from comity.federation.owner.host import Host
from comity.federation.owner.store import Store
from comity.federation.part import SUM
from comity.federation.protocol import Protocol, step
from comity.federation.sum.site import SecureSum
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Loss
from comity.privacy.randomness import ReleasedNoise
from comity.privacy.unit import Neighbours, Unit
from comity.study.local.channel import LocalChannel
from tests.federation.toy import STUDY, Watched

Floats = NDArray[np.float64]


def identity(name: str) -> Identity:
    return Identity(derive(b"test identity", name))


def make_consortium(
    size: int,
    loss: Loss,
    *,
    unit: Unit = Unit.RECORD,
    neighbours: Neighbours = Neighbours.REPLACE,
    dropouts: int = 0,
    colluders: int = 1,
) -> Consortium:
    names = tuple(f"party-{place}" for place in range(size))
    return Consortium(
        parties=names,
        loss=loss,
        unit=unit,
        neighbours=neighbours,
        colluders=colluders,
        dropouts=dropouts,
        roster={name: identity(name).public for name in (*names, COORDINATOR)},
    )


def hosted(
    protocol: Protocol,
    consortium: Consortium,
    records: Mapping[str, LocalRecords],
    *,
    noise: Any = None,
    liars: Mapping[str, Agreement] | None = None,
) -> tuple[Parties, dict[str, Host]]:
    """A run over real hosts. `liars` go by another agreement than the study says."""
    agreement, noise = Agreement(STUDY, protocol, consortium), noise or ReleasedNoise()
    hosts = {
        name: Host(
            (liars or {}).get(name, agreement),
            name,
            records=records[name],
            keys=identity(name),
            store=Store(
                Ledger.in_memory(dataset=name, unit=consortium.unit, neighbours=consortium.neighbours),
                unit=consortium.unit,
                neighbours=consortium.neighbours,
            ),
            noise=noise,
            policy=SIMULATION,
        )
        for name in consortium.parties
    }
    journal = Watched()
    parties = Parties(
        agreement,
        run="run-1",
        channel=LocalChannel(hosts),
        journal=journal,
        keys=identity(COORDINATOR),
        noise=noise,
    )
    return parties, hosts


def multiplied(protocol: Protocol, consortium: Consortium, factor: float, only: str = "") -> Agreement:
    """What a liar goes by: its contributions, or those to one release, are so many times what the bound leaves."""
    lying = Agreement(STUDY, protocol, consortium)
    releases = tuple(
        replace(one, bound=beyond(one.bound, lambda value: factor * value))
        if one.bound is not None and only in ("", one.name)
        else one
        for one in lying.declaration.releases
    )
    lying._declared[""] = replace(lying.declaration, releases=releases)
    return lying


def beyond(bound: Bound, lie: Callable[[Floats], Floats]) -> Bound:
    """A bound that says what the honest one says, and enforces nothing: what leaves is `lie` of what should."""
    kind: Any = type(bound)

    def enforce(self: Any, value: Floats, shape: tuple[int, ...]) -> Floats:
        return lie(kind.enforce(self, value, shape))

    made = copy.copy(bound)
    object.__setattr__(made, "__class__", type(kind.__name__, (kind,), {"enforce": enforce}))
    return made


class Zeros(SecureSum):
    """Sends zeros in place of the masked vector, so that the others' masks do not cancel."""

    @step(per_sum=True, gives=("masked",))
    def mask(self, site: Any, roll: dict[str, bytes]) -> dict[str, Any]:
        return {"masked": np.zeros_like(super().mask(site, roll)["masked"])}


def with_zeros(protocol: Protocol, consortium: Consortium) -> Agreement:
    lying = Agreement(STUDY, protocol, consortium)
    cast(Any, lying).__dict__["mounts"] = {**lying.mounts, SUM: Zeros()}
    return lying
