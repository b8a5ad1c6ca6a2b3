"""The agreement: a study's hash, its protocol and its consortium in one value.

Hosts and coordinator are built from it, so the three can't belong to different studies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from threading import RLock
from typing import Any

from comity.errors import Malformed, Refused
from comity.federation.declare.about import UNSTATED, About
from comity.federation.declare.consortium import COORDINATOR, Consortium
from comity.federation.declare.declaration import Declaration, Release, SumGroup
from comity.federation.declare.release import is_release_name
from comity.federation.evaluation.figures import Figures
from comity.federation.evaluation.protocol import ModelEvaluation
from comity.federation.lifecycle import Lifecycle
from comity.federation.messages.ask import StepPath
from comity.federation.messages.received import Received
from comity.federation.part import ALWAYS_MOUNTED, EVALUATION, RUN, SUM, Part, StepSpec, spec_of
from comity.federation.protocol import Protocol
from comity.federation.sum.site import SecureSum
from comity.representation import short_repr

_MOUNT = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True, eq=False)
class Agreement:
    """`study` is the study's hash; `title` names the study in ledger entries; `about` is what its author says of it.

    Each declaration is made once. In a simulation all hosts share one agreement.
    """

    __repr__ = short_repr

    study: str
    protocol: Protocol
    consortium: Consortium
    title: str = "study"
    about: About = UNSTATED
    _declared: dict[str, Declaration] = field(default_factory=dict, init=False, repr=False)
    _sent: dict[tuple[str, str], Release] = field(default_factory=dict, init=False, repr=False)
    _declaring: Any = field(default_factory=RLock, init=False, repr=False)

    @cached_property
    def mounts(self) -> Mapping[str, Part]:
        """Every part of the run by its mount. The study's own protocol has the empty mount."""
        parts = dict(self.protocol.parts)
        for name in parts:
            if name in ALWAYS_MOUNTED or name.startswith(EVALUATION) or not _MOUNT.fullmatch(name):
                raise ValueError(
                    f"a part can't be mounted as {name!r}: expected a plain name other than "
                    f"{', '.join((*ALWAYS_MOUNTED, EVALUATION))}"
                )
        return {"": self.protocol, RUN: Lifecycle(), SUM: SecureSum(), **parts, **self._evaluation_parts}

    @cached_property
    def model_evaluation(self) -> ModelEvaluation | None:
        """The part that evaluates the model, if the study has an evaluation."""
        return None if self.consortium.evaluation is None else self.protocol.model_evaluation(self.consortium)

    @property
    def _evaluation_parts(self) -> Mapping[str, Part]:
        if self.model_evaluation is None:
            return {}
        named = {f"{EVALUATION}_{name}": part for name, part in self.model_evaluation.parts.items()}
        return {EVALUATION: self.model_evaluation, **named}

    @property
    def evaluation_mounts(self) -> tuple[str, ...]:
        return tuple(self._evaluation_parts)

    def is_holdout(self, mount: str) -> bool:
        """Whether the steps of this mount see the held-out records, and not the others."""
        return self.model_evaluation is not None and (mount == EVALUATION or mount.startswith(f"{EVALUATION}_"))

    @property
    def declaration(self) -> Declaration:
        """The protocol's declaration, accepted for this consortium."""
        return self.declared("")

    @cached_property
    def accepted(self) -> Declaration:
        """The protocol's declaration, after those of its parts were accepted beside it."""
        for part in self.protocol.parts.values():
            part.declare(self.consortium).accept(self.consortium, beside=self.declaration)
        return self.declaration

    def declared(self, mount: str) -> Declaration:
        """The declaration of the part with this mount."""
        known = self._declared
        if mount not in known:
            with self._declaring:
                if mount not in known:
                    consortium = self.consortium
                    found = self._part(mount).declare(consortium) if mount else self.protocol.declared(consortium)
                    for release in found.releases:
                        if not is_release_name(release.name):
                            raise ValueError(f"a release can't be named {release.name!r}: use letters, digits, - and _")
                    known[mount] = found if mount else found.accept(consortium)
        return known[mount]

    @cached_property
    def letters(self) -> Mapping[str, str]:
        """The mount that writes each kind of letter, by the letter's name. A protocol may repeat a part's letters, to
        show them in its plan. Two parts may not use one name: each would read the other's letters."""
        return self._letters(holdout=False)

    @cached_property
    def _holdout_letters(self) -> Mapping[str, str]:
        return self._letters(holdout=True)

    def writer_of(self, name: str, *, holdout: bool) -> str | None:
        """The mount whose letters have this name, among the steps that see held-out records or among the others."""
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
                    raise ValueError(f"{before or 'the protocol'} and {mount} both have a letter {release.name!r}")
                owners[release.name] = mount
        return owners

    def step(self, path: StepPath) -> tuple[Callable[..., Any], StepSpec]:
        """The step of this path. Refuses a label under which it may not be asked for."""
        function = self._part(path.mount).find(path.step)
        spec = spec_of(function, self.consortium)
        if spec.per_sum and path.label in self.declaration.sums():
            return function, spec
        if spec.per_sum_group and path.label in self._set_ups:
            return function, spec
        if spec.sends and (spec.sends in self.declaration.holdout) != self.is_holdout(path.mount):
            raise Refused(f"{path} does not see the records that {spec.sends} is made from", code="undeclared")
        times = self.declaration[spec.sends].times if spec.sends else 0 if spec.per_sum_group else spec.times
        label = path.label
        if not (label.isascii() and label.isdecimal()) or label != str(int(label)) or int(label) >= times:
            raise Refused(f"{path}: asked for more often than declared", code="too-often")
        return function, spec

    @cached_property
    def _set_ups(self) -> Mapping[str, SumGroup]:
        return {str(group.place): group for group in self.declaration.sum_groups(self.consortium)}

    @cached_property
    def _sum_groups(self) -> Mapping[str, SumGroup]:
        return {**self._set_ups, **{label: group for group in self._set_ups.values() for label in group.sums}}

    def sum_group(self, label: str) -> SumGroup:
        """The parties of a sum, by the label of the sum or of its set-up (the group's place)."""
        found = self._sum_groups.get(label)
        if found is None:
            raise Refused(f"no parties sum under {label!r}", code="too-often")
        return found

    def letter(self, path: str, name: str) -> Release:
        """The release of a letter with this name that the step of this path sent."""
        known = self._sent.get((path, name))
        if known is not None:
            return known
        sent = StepPath.parse(path)
        self.step(sent)
        if self.writer_of(name, holdout=self.is_holdout(sent.mount)) != sent.mount:
            raise Malformed(f"{name!r} is not declared as a letter of {path}", code="undeclared")
        # At most one entry for each step, label and name: refused letters are not remembered.
        release = self._sent[path, name] = self.declared(sent.mount)[name]
        return release

    def writers(self) -> dict[str, set[str]]:
        """Which parties may write letters in this run, and to whom. Letters of the secure sum are left out: its own
        steps distribute their keys."""
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

    def evaluation_figures(self, received: Received) -> Figures | None:
        """The figures of the run's evaluation, from what a party received; None without an evaluation, or if its sums
        were not released to that party."""
        evaluation = self.model_evaluation
        return None if evaluation is None else evaluation.figures(received.releases, self.consortium)

    def _part(self, mount: str) -> Part:
        part = self.mounts.get(mount)
        if part is None:
            raise Refused(f"nothing is mounted as {mount!r}", code="no-step")
        return part
