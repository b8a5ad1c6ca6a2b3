"""An owner with a program of its own: it sends other values than the study lets it send, properly masked and signed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.data import LocalRecords
from comity.federation.agreement import Agreement
from comity.federation.coordinator.parties import Parties
from comity.federation.declare.bounds import Bound
from comity.federation.declare.consortium import Consortium
from comity.federation.messages.ask import StepPath
from comity.federation.owner.host import Host
from comity.federation.part import StepSpec
from comity.federation.protocol import Protocol
from comity.privacy.loss import Loss
from comity.privacy.randomness import ReleasedNoise
from comity.privacy.unit import Unit
from comity.study.local.channel import LocalChannel
from tests.support.consortia import STUDY, make_consortium, make_hosts, make_parties

Floats = NDArray[np.float64]


def make_numbered_consortium(size: int, loss: Loss, *, unit: Unit = Unit.RECORD) -> Consortium:
    """So many parties, `party-0` and on, of which none may drop out."""
    return make_consortium([f"party-{place}" for place in range(size)], loss, unit=unit, dropouts=0)


def host_all(
    protocol: Protocol,
    consortium: Consortium,
    records: Mapping[str, LocalRecords],
    *,
    noise: Any = None,
    liars: Mapping[str, Agreement] | None = None,
) -> tuple[Parties, dict[str, Host]]:
    """A run over real hosts. `liars` have another agreement than the study says."""
    agreement, noise = Agreement(STUDY, protocol, consortium), noise or ReleasedNoise()
    hosts = make_hosts(agreement, records, noise=noise, liars=liars)
    return make_parties(agreement, hosts, noise=noise, channel=LocalChannel(hosts)), hosts


def multiply_contributions(protocol: Protocol, consortium: Consortium, factor: float, only: str = "") -> Agreement:
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


class SendsZeros(Agreement):
    """Sends zeros in place of the masked vector, so that the others' masks do not cancel."""

    def step(self, path: StepPath) -> tuple[Callable[..., Any], StepSpec]:
        function, spec = super().step(path)

        def zeroed(site: Any, **values: Any) -> Any:
            found = function(site, **values)
            site.contribution = np.zeros_like(site.contribution)
            return found

        return (function if spec.sends is None else zeroed), spec


def send_zeros(protocol: Protocol, consortium: Consortium) -> Agreement:
    return SendsZeros(STUDY, protocol, consortium)
