"""What the coordinator sends each receiver at the end of a run, and signs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from comity.crypto.sealing.sealed import Identity
from comity.federation.agreement import Agreement
from comity.federation.coordinator.kept import Sent
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, ITSELF
from comity.federation.messages.codec import encode
from comity.federation.messages.vouched import vouch
from comity.federation.part import STANDING
from comity.federation.step import StepSpec


def at_the_end(
    agreed: Agreement, values: Mapping[str, Any], kept: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What `run.end` carries: to all parties, and to single ones. `values` are those that the method released, `kept`
    what was opened, perturbed or sent on the way; what a step takes has arrived with its ask."""
    who, arrived = agreed.consortium, _taken(agreed)
    common: dict[str, Any] = {}
    single: dict[str, dict[str, Any]] = {}
    for name, value in {**kept, **values}.items():
        release = agreed.declaration[name]
        if release.to in (COORDINATOR, ITSELF) or (name in arrived and name not in values):
            continue
        if release.to in (EVERYONE, EVERY_PARTY):
            common[name] = value
            continue
        for party in who.parties:
            if who.includes(release.to, party):
                single.setdefault(party, {})[name] = value
    return common, single


def _taken(agreed: Agreement) -> set[str]:
    specs = (
        getattr(getattr(type(protocol), name, None), "spec", None)
        for mount, protocol in agreed.mounts.items()
        if mount not in STANDING
        for name in dir(type(protocol))
    )
    return {name for spec in specs if isinstance(spec, StepSpec) for name in spec.takes}


def by_party(
    agreed: Agreement, keys: Identity, run: str, sent: Iterable[Sent]
) -> dict[str, dict[str, dict[str, bytes]]]:
    """For each party the signatures of what was released to it."""
    who = agreed.consortium
    found: dict[str, dict[str, dict[str, bytes]]] = {party: {} for party in who.parties}
    for one in sent:
        entitled = [party for party in who.parties if who.includes(agreed.declaration[one.name].to, party)]
        # What all were sent is signed once.
        common = None if one.own else vouch(keys, agreed.study, run, one.name, one.path, encode(one.value))
        for party in entitled:
            if common is not None:
                found[party].setdefault(one.name, {})[one.path] = common
            elif party in one.own:
                signature = vouch(keys, agreed.study, run, one.name, one.path, encode(one.own[party]))
                found[party].setdefault(one.name, {})[one.path] = signature
    return found
