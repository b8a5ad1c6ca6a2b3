"""A run with other records at some of its parties: only their steps run again.

A search for the strongest neighbours tries many records of few parties. What the other parties contribute stays the
same, and so do all messages. So the real steps of the changed parties run again, on the messages that they got, with
real bounds and grids, and the change of what they contribute is added to what the run opened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.audit.capture import RUN, ListeningHost, Run, without_warnings
from comity.data import LocalRecords
from comity.errors import ComityError
from comity.federation.declare.protection import Noised, Summed
from comity.federation.declare.release import Release
from comity.federation.messages.ask import Ask
from comity.federation.owner.host import Host
from comity.federation.owner.site import Site
from comity.federation.owner.step_execution import Spent, StepExecution
from comity.federation.part import RUN as LIFECYCLE
from comity.federation.part import SUM

Units = NDArray[np.int64]
Contributions = Mapping[tuple[str, int], Units]
"""By release and index, in grid units."""


def with_other_records(run: Run, records: Mapping[str, LocalRecords]) -> Run | None:
    """The run as it would have opened with these records at some of its parties, to which it has listened.

    None where this can't be told from their contributions: steps remember something, send letters, or compute what they
    reply. Such a run has to be made in full.
    """
    assert run.hosted is not None
    if not all(isinstance(one.release.protection, Summed | Noised) for one in run.opened):
        return None
    opened = run.opened
    for party, held in records.items():
        host = run.hosted.hosts[party]
        assert isinstance(host, ListeningHost)
        with without_warnings():
            before = contributions(host.asks, host)
            after = contributions(host.asks, run.hosted.make_host(party, held, host.store))
        if before is None or after is None or before.keys() != after.keys():
            return None
        seen = Counter[str]()
        changed = []
        for one in opened:
            name = one.release.name
            place = name, seen[name]
            if one.party in ("", party):
                seen[name] += 1
                if place in before:
                    one = replace(one, units=one.units + (after[place] - before[place]).reshape(one.units.shape))
            changed.append(one)
        opened = tuple(changed)
    return replace(run, opened=opened)


def contributions(asks: list[Ask], host: Host) -> Contributions | None:
    """What this host contributes to each release when it is asked this again, before masks. Nothing is committed."""
    found: dict[tuple[str, int], Units] = {}
    for ask in asks:
        if ask.path.mount in (LIFECYCLE, SUM):
            continue
        units = _contribution(ask, host)
        if units is None:
            return None
        found.update(units)
    return found


def _contribution(ask: Ask, host: Host) -> dict[tuple[str, int], Units] | None:
    agreement = host.agreement
    function, spec = agreement.step(ask.path)
    if spec.sends is None or ask.mail:
        return None
    site = _UnmaskedSite(host, RUN, ask.path, spec.sends)
    execution = StepExecution(agreement, site, partial(function, site), spec, agreement.declared(ask.path.mount))
    release = site.release(spec.sends)
    try:
        outcome = execution.run(execution.open_values(ask.values))
    except ComityError:
        return None
    kept = {name for name in site.effects.state if not name.startswith("dim:")}
    if isinstance(outcome, Spent) or kept or site.effects.mail or not site.contributed:
        return None
    if not isinstance(release.protection, Noised | Summed):
        return None
    return {(release.name, int(ask.path.label)): np.asarray(site.contribution, np.int64)}


class _UnmaskedSite(Site):
    """A site whose contributions to sums have no masks: the set-up of the run that it repeats is deleted."""

    def _prepared_sums(self, release: Release, index: int) -> Any:
        return ()

    def _mask(self, units: Units, *_: Any) -> Any:
        return units
