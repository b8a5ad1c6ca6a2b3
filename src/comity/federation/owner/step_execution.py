"""The execution of one step at a site: the values that it takes, its outcome, and the reply to the coordinator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from comity.errors import BadInput, ComityError, Malformed, Refused
from comity.federation.agreement import Agreement
from comity.federation.declare.consortium import COORDINATOR
from comity.federation.declare.declaration import Declaration
from comity.federation.declare.release import Count
from comity.federation.messages.letters import open_values, seal_values
from comity.federation.messages.received import is_kept
from comity.federation.messages.wire_format import SAME_RELEASE
from comity.federation.owner.site import Site
from comity.federation.part import StepSpec

log = logging.getLogger("comity.site")


@dataclass(frozen=True, eq=False)
class Done:
    """The step ran. `values` is what it gives beside its contribution."""

    values: Mapping[str, Any]


@dataclass(frozen=True)
class Neutral:
    """The step failed because of its data before it drew anything, and its party contributed the neutral value: a party
    that is missing because of its data would reveal something about it."""


@dataclass(frozen=True)
class Spent:
    """The step failed after a draw: the draw is paid for, and the stored answer is "stopped"."""


Outcome = Done | Neutral | Spent


@dataclass(frozen=True, eq=False)
class StepExecution:
    """A step that is asked for. `declared` are the releases of the part that it belongs to."""

    agreement: Agreement
    site: Site
    function: Callable[..., Any]
    spec: StepSpec
    declared: Declaration

    def open_values(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values of an ask in clear, each checked against its declaration."""
        site, spec, declared = self.site, self.spec, self.declared
        if set(asked) != set(spec.takes):
            raise Malformed(
                f"{spec.name} takes {list(spec.takes)}, found {sorted(asked)}, as another release of Comity sends it: "
                f"{SAME_RELEASE}",
                code="form",
            )
        sealed = any(declared[name].sealed for name in asked)
        values = (
            open_values(asked, declared, site.mailbox.run_key(), site.mailbox.heads(COORDINATOR)) if sealed else asked
        )
        for key, value in values.items():
            release = declared[key]
            release.check(value, COORDINATOR, site.party, self.agreement.consortium, site.dims)
            if isinstance(release.form, Count):
                if site.kept(f"dim:{key}", value) != value:
                    raise Refused(f"{key} was bound to another number in this run", code="form", key=key)
                site.keep(f"dim:{key}", value)
            if is_kept(release) and release in self.agreement.declaration.releases:
                site.keep_arrived(release, value)
        return values

    def run(self, given: Mapping[str, Any]) -> Outcome:
        """Run the step. Raises a failure before a draw where its party can't contribute neutrally."""
        site, name = self.site, self.spec.name
        try:
            values = self.function(**given) or {}
            # Part of the step: after a draw, an undeclared result must not reveal itself free of charge.
            self._check_given(values)
        except (Exception, SystemExit) as error:
            if site.effects.draws:
                log.exception("%s failed in %s", site.party, name)
                return Spent()
            of_data = isinstance(error, BadInput) or not isinstance(error, ComityError)
            if of_data and self._may_be_neutral():
                log.exception("%s failed in %s and takes part neutrally", site.party, name)
                site.contribute(None)
                return Neutral()
            if isinstance(error, ComityError):
                raise
            log.exception("%s failed in %s", site.party, name)
            raise Refused(f"{name} failed; see the log of this site", code="stopped") from None
        return Done(values)

    def reply(self, outcome: Outcome) -> dict[str, Any]:
        """The reply that leaves with the commit."""
        site, spec, declared = self.site, self.spec, self.declared
        if isinstance(outcome, Spent):
            site.effects.forget_all_but_draws()
            return {"stopped": True}
        values = outcome.values if isinstance(outcome, Done) else {}
        if any(declared[key].sealed for key in values):
            heads = site.mailbox.heads(site.party, COORDINATOR)
            values = seal_values(values, declared, site.mailbox.coordinator_key(), heads)
        if site.contribution is not None:
            assert spec.sends is not None
            values = {**values, spec.sends: site.contribution}
        reply: dict[str, Any] = {"ok": values, "mail": site.effects.mail}
        return {**reply, "boxes": list(site.effects.boxes.values())} if site.effects.boxes else reply

    def _may_be_neutral(self) -> bool:
        """Whether the neutral value is within the declared sensitivity of any value that this party could send. What a
        step gives beside its contribution has no neutral value."""
        spec = self.spec
        if spec.gives:
            return False
        bound = None if spec.sends is None else self.agreement.declaration[spec.sends].bound
        return bound is not None and bound.neutral_within

    def _check_given(self, values: Mapping[str, Any]) -> None:
        site, spec, declared = self.site, self.spec, self.declared
        if not spec.is_given(values):
            raise Malformed(f"{spec.name} gives {list(spec.gives)}, found {sorted(values)}", code="undeclared")
        for key, value in values.items():
            declared[key].check(value, site.party, COORDINATOR, self.agreement.consortium, site.dims)
