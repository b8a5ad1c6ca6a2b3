"""Which methods can be simulated with so many parties that they run in stacks, instead of a host for each."""

from __future__ import annotations

from comity.errors import StudyError
from comity.federation.declare.bounds import OpenedValue
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Declaration
from comity.federation.declare.protection import Computed, EntrustedRounds
from comity.federation.part import steps_of
from comity.federation.protocol import Protocol

# Above this many parties a simulation runs stacks of them instead of a host each.
REAL_HOSTS = 1000


def runs_as_stacks(parties: int, *, hosts: bool) -> bool:
    """Whether so many parties run as stacks: they are too many for a host each, or nobody asked for hosts."""
    return parties > REAL_HOSTS or not hosts


def require_no_evaluation(consortium: Consortium) -> None:
    """Refuse an evaluation over stacks of parties: their records are not split into trained on and set aside."""
    if consortium.evaluation is not None:
        raise StudyError(
            f"[evaluation] is simulated with a host for each of at most {REAL_HOSTS} parties, found stacks of "
            f"{consortium.size}; leave it out, or simulate fewer with hosts",
            key="evaluation",
        )


def require_stacks(protocol: Protocol, declaration: Declaration, consortium: Consortium) -> None:
    """Refuse a method with a paid release that no step on stacks of parties makes."""
    stacked = {spec.sends for spec in steps_of(protocol, consortium) if spec.stacked}
    paid = [release for release in declaration.releases if release.loss is not None]
    single = [
        one.name
        for one in paid
        if one.name not in stacked
        or isinstance(one.bound, OpenedValue)
        or isinstance(one.protection, Computed | EntrustedRounds)
    ]
    if single or not protocol.stackable:
        why = f"{single[0]} is made at one site at a time" if single else "it asks each party by itself"
        raise StudyError(
            f"{protocol.name}: a simulation of more than {REAL_HOSTS} parties, or without hosts, runs stacks of them, "
            f"and {why}; simulate at most {REAL_HOSTS} parties, with hosts",
            key="parties",
        )
