"""Simulations of very many parties: their names, and which methods can run them as stacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from comity.errors import StudyError
from comity.federation.declare.bounds import OpenedValue
from comity.federation.declare.consortium import Consortium
from comity.federation.declare.declaration import Declaration
from comity.federation.declare.protection import Computed, EntrustedRounds
from comity.federation.part import steps_of
from comity.federation.protocol import Protocol

# Above this many parties a simulation runs stacks of them instead of a host each.
REAL_HOSTS = 1000


class NumberedParties(Sequence[str]):
    """The names p0, p1, …, each made when it is asked for: a million parties take no memory."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [f"p{k}" for k in range(self._count)[place]]
        return f"p{range(self._count)[place]}"

    def __iter__(self) -> Iterator[str]:
        return (f"p{k}" for k in range(self._count))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name[:1] == "p" and name[1:].isdecimal() and int(name[1:]) < self._count


def runs_as_stacks(parties: int, *, hosts: bool) -> bool:
    """Whether so many parties run as stacks: they are too many for a host each, or hosts were declined."""
    return parties > REAL_HOSTS or not hosts


def require_stacks(protocol: Protocol, declaration: Declaration, consortium: Consortium) -> None:
    """Refuse to run parties as stacks where a paid release is made at one site at a time, and with an evaluation: the
    records of a stack are not split into training and holdout."""
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
    if consortium.evaluation is not None:
        raise StudyError(
            f"[evaluation] is simulated with a host for each of at most {REAL_HOSTS} parties, found stacks of "
            f"{consortium.size}; leave it out, or simulate fewer with hosts",
            key="evaluation",
        )
