"""What the participants of a study agreed on, in one value: hosts and coordinator are made from it, so that the hash,
the protocol and the consortium can't be of different studies."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from threading import RLock
from typing import Any

from comity.errors import Malformed, Refused
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.declaration import Circle, Declaration, Release
from comity.federation.declare.release import is_release_name
from comity.federation.evaluation.figures import Figures
from comity.federation.evaluation.protocol import Measuring
from comity.federation.lifecycle import Lifecycle
from comity.federation.messages.ask import StepPath
from comity.federation.messages.received import Received
from comity.federation.part import EVALUATION, RUN, STANDING, SUM, Part, StepSpec, spec_of
from comity.federation.protocol import Protocol
from comity.federation.sum.site import SecureSum
from comity.representation import short_repr

_MOUNT = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True, eq=False)
class Agreement:
    """`study` is the study's hash, `title` what its ledger entries are called by.

    Declarations are made once: the same value serves every step and, in a simulation, every host.
    """

    __repr__ = short_repr

    study: str
    protocol: Protocol
    consortium: Consortium
    title: str = "study"
    _declared: dict[str, Declaration] = field(default_factory=dict, init=False, repr=False)
    _sent: dict[tuple[str, str], Release] = field(default_factory=dict, init=False, repr=False)
    _declaring: Any = field(default_factory=RLock, init=False, repr=False)

    @cached_property
    def mounts(self) -> Mapping[str, Part]:
        """Every part of the run by what it is mounted under, the study's own protocol under the empty name."""
        parts = dict(self.protocol.parts)
        for name in parts:
            if name in STANDING or name.startswith(EVALUATION) or not _MOUNT.fullmatch(name):
                raise ValueError(
                    f"a part can't be mounted as {name!r}: a plain name was expected, not {(*STANDING, EVALUATION)}"
                )
        return {"": self.protocol, RUN: Lifecycle(), SUM: SecureSum(), **parts, **self._measuring}

    @cached_property
    def measuring(self) -> Measuring | None:
        """How the run's model is measured, where the study has an evaluation."""
        return None if self.consortium.evaluation is None else self.protocol.measured(self.consortium)

    @property
    def _measuring(self) -> Mapping[str, Part]:
        if self.measuring is None:
            return {}
        named = {f"{EVALUATION}_{name}": part for name, part in self.measuring.parts.items()}
        return {EVALUATION: self.measuring, **named}

    @property
    def measuring_mounts(self) -> tuple[str, ...]:
        return tuple(self._measuring)

    def is_holdout(self, mount: str) -> bool:
        """Whether steps of what is mounted here see the records that were set aside, instead of the others."""
        return self.measuring is not None and (mount == EVALUATION or mount.startswith(f"{EVALUATION}_"))

    @property
    def declaration(self) -> Declaration:
        """What the protocol itself declares, accepted for this consortium."""
        return self.declared("")

    def declared(self, mount: str) -> Declaration:
        """What the protocol under this name declares."""
        known = self._declared
        if mount not in known:
            with self._declaring:
                if mount not in known:
                    consortium = self.consortium
                    made = self._owner(mount).declare(consortium) if mount else self.protocol.declared(consortium)
                    for release in made.releases:
                        if not is_release_name(release.name):
                            raise ValueError(f"{release.name!r} is no name for a release: letters, digits, - and _")
                    known[mount] = made if mount else made.accept(consortium)
        return known[mount]

    @cached_property
    def letters(self) -> Mapping[str, str]:
        """Which protocol each kind of letter belongs to. A protocol may list a part's letters for its plan; two parts
        with one name for theirs would read each other's."""
        return self._letters(holdout=False)

    @cached_property
    def _holdout_letters(self) -> Mapping[str, str]:
        return self._letters(holdout=True)

    def writer_of(self, name: str, *, holdout: bool) -> str | None:
        """Which protocol's letters have this name: among those of one part of the records, a name has one owner."""
        return (self._holdout_letters if holdout else self.letters).get(name)

    def _letters(self, *, holdout: bool) -> dict[str, str]:
        owners: dict[str, str] = {}
        for mount in self.mounts:
            if self.is_holdout(mount) != holdout:
                continue
            for release in self.declared(mount).releases:
                if not release.sealed or COORDINATOR in (release.source, release.to):
                    continue
                before = owners.get(release.name)
                if before or (before == "" and self.declared("")[release.name] != release):
                    raise ValueError(f"{before or 'the protocol'} and {mount} both call a letter {release.name!r}")
                owners[release.name] = mount
        return owners

    def step(self, path: StepPath) -> tuple[Callable[..., Any], StepSpec]:
        """The step that a path names, where it may be asked for under this label."""
        function = self._owner(path.mount).find(path.step)
        spec = spec_of(function, self.consortium)
        if spec.per_sum and path.label in self.declaration.sums():
            return function, spec
        if spec.per_circle and path.label in self._set_ups:
            return function, spec
        if spec.sends and (spec.sends in self.declaration.holdout) != self.is_holdout(path.mount):
            raise Refused(f"{path} does not see the records that {spec.sends} is made from", code="undeclared")
        times = self.declaration[spec.sends].times if spec.sends else 0 if spec.per_circle else spec.times
        label = path.label
        if not (label.isascii() and label.isdecimal()) or label != str(int(label)) or int(label) >= times:
            raise Refused(f"{path}: asked for more often than declared", code="too-often")
        return function, spec

    @cached_property
    def _set_ups(self) -> Mapping[str, Circle]:
        return {str(circle.place): circle for circle in self.declaration.circles(self.consortium)}

    @cached_property
    def _circles(self) -> Mapping[str, Circle]:
        return {**self._set_ups, **{label: circle for circle in self._set_ups.values() for label in circle.sums}}

    def circle(self, label: str) -> Circle:
        """Who sums together, by the label of a sum or of their set-up, which is their place among the circles."""
        found = self._circles.get(label)
        if found is None:
            raise Refused(f"no parties sum under {label!r}", code="too-often")
        return found

    def letter(self, path: str, name: str) -> Release:
        """The release that a letter of this name is, sent by the step of this path."""
        known = self._sent.get((path, name))
        if known is not None:
            return known
        sent = StepPath.parse(path)
        self.step(sent)
        if self.writer_of(name, holdout=self.is_holdout(sent.mount)) != sent.mount:
            raise Malformed(f"{name!r} is not declared as a letter of {path}", code="undeclared")
        # As many as there are steps and labels: what is refused is not remembered.
        release = self._sent[path, name] = self.declared(sent.mount)[name]
        return release

    def writers(self) -> dict[str, set[str]]:
        """Which parties may write letters in this run, and to whom; the secure sum hands round its keys itself."""
        out: dict[str, set[str]] = {}
        consortium = self.consortium
        for name, mount in (*self.letters.items(), *self._holdout_letters.items()):
            if mount == SUM:
                continue
            release = self.declared(mount)[name]
            receivers = {party for party in consortium.parties if consortium.includes(release.to, party)}
            for party in consortium.parties:
                if consortium.includes(release.source, party):
                    out.setdefault(party, set()).update(receivers - {party})
        return {party: to for party, to in out.items() if to}

    def _owner(self, mount: str) -> Part:
        owner = self.mounts.get(mount)
        if owner is None:
            raise Refused(f"nothing is mounted as {mount!r}", code="no-step")
        return owner


def measured_by(agreement: Agreement, found: Received) -> Figures | None:
    """What the run's evaluation says to this receiver; None where there is none, or it was not released to it."""
    return None if agreement.measuring is None else agreement.measuring.figures(found.releases, agreement.consortium)
