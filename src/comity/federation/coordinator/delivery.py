"""What a run releases: the values that its receivers keep, and what the coordinator sends and signs at the end.

Kept are opened sums, values that a site or a trusted coordinator noised or computed privately, and values that are made
from those and sent. Nothing else belongs in a result: sealed mail is deleted with the run, public messages say nothing
about records, entrusted values may leave their coordinator only perturbed, and no noise covers what is disclosed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from comity.crypto.sealing import Identity
from comity.federation.agreement import Agreement
from comity.federation.declare.consortium import COORDINATOR, EVERY_PARTY, EVERYONE, ITSELF
from comity.federation.declare.declaration import Declaration, Release
from comity.federation.declare.protection import Summed
from comity.federation.messages.codec import encode
from comity.federation.messages.received import is_kept
from comity.federation.messages.signatures import sign_value
from comity.federation.part import ALWAYS_MOUNTED, StepSpec


@dataclass(frozen=True, eq=False)
class Sent:
    """One value of a release as an ask brought it: `value` to all parties that were asked, or `own` to each."""

    name: str
    path: str
    value: Any = None
    own: Mapping[str, Any] = field(default_factory=dict)


class KeptValues:
    """Values by release and by the ask that brought them: asking again changes nothing."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Any]] = {}
        self._sent: dict[tuple[str, str], Sent] = {}

    def add(self, release: Release, path: str, value: Any) -> None:
        if is_kept(release):
            self._found.setdefault(release.name, {})[path] = value

    def add_exchange(
        self,
        declaration: Declaration,
        part: Declaration,
        path: str,
        common: Mapping[str, Any],
        each: Mapping[str, Mapping[str, Any]],
        replies: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Add the values of one ask: `common` ones, those for `each` party, and its `replies`. `part` is the
        declaration of the part that asks; of its releases, those count that the protocol declares too."""
        for name, value in common.items():
            if self._add_if_kept(declaration, part, path, name, value):
                self._sent[name, path] = Sent(name, path, value)
        for by_party in (each, replies):
            for name in dict.fromkeys(name for values in by_party.values() for name in values):
                found = {party: values[name] for party, values in by_party.items() if name in values}
                if self._add_if_kept(declaration, part, path, name, found) and by_party is each:
                    self._sent[name, path] = Sent(name, path, own=found)

    def _add_if_kept(self, declaration: Declaration, part: Declaration, path: str, name: str, value: Any) -> bool:
        release = part[name]
        known = next((one for one in declaration.releases if one.name == name), None)
        # The protocol may know better than the part what the release is made from.
        is_declared = known is not None and replace(known, protection=release.protection) == release
        # A masked vector says nothing until the sum is opened.
        if not is_declared or isinstance(release.protection, Summed) or not is_kept(release):
            return False
        self.add(release, path, value)
        return True

    @property
    def sent(self) -> list[Sent]:
        """What asks sent to parties, and parties may keep."""
        return list(self._sent.values())

    def values(self, declaration: Declaration) -> dict[str, Any]:
        """The values by release: a list where a release may be made several times."""
        return {
            name: list(found.values()) if len(found) > 1 or declaration[name].times > 1 else next(iter(found.values()))
            for name, found in self._found.items()
        }


def opened_sum(value: Any, parties: int) -> dict[str, Any]:
    """A sum as it is kept, with the number of contributions."""
    return {"sum": value, "parties": parties}


def split_by_receiver(
    agreement: Agreement, values: Mapping[str, Any], kept: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What `run.end` carries to all parties, and to single ones.

    `values` are what the method released at its end, `kept` what was released before. A value that a step takes has
    arrived with its ask.
    """
    consortium, arrived = agreement.consortium, _taken_by_steps(agreement)
    common: dict[str, Any] = {}
    single: dict[str, dict[str, Any]] = {}
    for name, value in {**kept, **values}.items():
        release = agreement.declaration[name]
        if release.to in (COORDINATOR, ITSELF) or (name in arrived and name not in values):
            continue
        if release.to in (EVERYONE, EVERY_PARTY):
            common[name] = value
            continue
        for party in consortium.parties:
            if consortium.includes(release.to, party):
                single.setdefault(party, {})[name] = value
    return common, single


def _taken_by_steps(agreement: Agreement) -> set[str]:
    specs = (
        getattr(getattr(type(protocol), name, None), "spec", None)
        for mount, protocol in agreement.mounts.items()
        if mount not in ALWAYS_MOUNTED
        for name in dir(type(protocol))
    )
    return {name for spec in specs if isinstance(spec, StepSpec) for name in spec.takes}


def sign_for_parties(
    agreement: Agreement, keys: Identity, run: str, sent: Iterable[Sent]
) -> dict[str, dict[str, dict[str, bytes]]]:
    """Sign each value that was sent; the signatures by party, of what was released to it alone or to all."""
    consortium = agreement.consortium
    found: dict[str, dict[str, dict[str, bytes]]] = {party: {} for party in consortium.parties}
    for one in sent:
        receiver = agreement.declaration[one.name].to
        entitled = [party for party in consortium.parties if consortium.includes(receiver, party)]
        # A value for all is signed once.
        common = None if one.own else sign_value(keys, agreement.study, run, one.name, one.path, encode(one.value))
        for party in entitled:
            if common is not None:
                found[party].setdefault(one.name, {})[one.path] = common
            elif party in one.own:
                signature = sign_value(keys, agreement.study, run, one.name, one.path, encode(one.own[party]))
                found[party].setdefault(one.name, {})[one.path] = signature
    return found
