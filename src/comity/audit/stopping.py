"""A coordinator that stops where it likes, repeats and begins again can't draw more than the owners granted.

What a run draws depends on what was opened before, so its budget is adaptive: what was reserved and never drawn is
freed, what was drawn never. The noise of each site is counted where it is drawn, not in the ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from comity.audit.capture import HostedParties, NoNoise, host_parties, without_warnings
from comity.audit.cases import DELTA, EPSILON, PARTIES, PLANE
from comity.audit.row import Check, Control
from comity.audit.study import NeighbourRecords, encode
from comity.errors import Refused
from comity.federation.coordinator.lifecycle import begin, ready
from comity.federation.coordinator.parties import Parties
from comity.federation.part import RUN
from comity.methods.averaging import Averaging
from comity.methods.averaging.method import AveragingProtocol
from comity.methods.averaging.second_moments import Whitening
from comity.privacy.accounting import gdp_epsilon
from comity.privacy.loss import GDP, Approx
from comity.privacy.permit import Permit
from comity.privacy.randomness import Integers, Shape

_GRANT = 2.0
_MOST_RUNS = 48


class CountedNoise(NoNoise):
    """Draws zeros, and notes every permit that it was given."""

    def __init__(self) -> None:
        self.drawn = Counter[str]()

    def rounded_gaussian(self, sigma: float, shape: Shape, *, permit: Permit) -> Integers:
        self.drawn[permit.release] += 1
        return super().rounded_gaussian(sigma, shape, permit=permit)


def stopping_check() -> Check:
    drawn, granted, runs = draw_until_refused(lambda hosted: hosted)
    found = f"{drawn:.3f} of {granted:.3f} drawn in {runs} runs that were stopped"
    return Check("a coordinator that stops and begins again draws no more than granted", drawn <= granted, found)


def forgetting_control() -> Control:
    """A broken twin: owners whose ledgers forget a run that was abandoned."""
    drawn, granted, _ = draw_until_refused(forget_runs)
    return Control("ledgers that forget abandoned runs", drawn > granted, drawn, granted)


def forget_runs(hosted: HostedParties) -> HostedParties:
    """The same records and counters of noise, over fresh ledgers."""
    fresh = host_parties(hosted.agreement, {name: host.records for name, host in hosted.hosts.items()}, grant=_grant())
    for name, host in fresh.hosts.items():
        host.noise = hosted.hosts[name].noise
    return fresh


def draw_until_refused(after_a_run: Callable[[HostedParties], HostedParties]) -> tuple[float, float, int]:
    """The ε that one owner's noise was drawn for, the ε that it granted, and how many runs were begun.

    Runs are stopped after one sum, two or three, in turn. Each is asked for a contribution again, taken through its
    set-up and first sum again, and begun again under its name, by a coordinator that remembers nothing of it, before it
    is abandoned.
    """
    study = Averaging(PLANE, sizes=60, intercept=False).study(PARTIES, epsilon=EPSILON, delta=DELTA)
    agreement = study.agreement
    made = NeighbourRecords(study.schema, agreement.consortium, "ash", by_columns=False, group=1, others=12)
    hosted = host_parties(agreement, encode(agreement, made.base), grant=_grant(), noise=CountedNoise)
    counted = hosted.hosts["ash"].noise
    assert isinstance(counted, CountedNoise)
    runs = 0
    with without_warnings():
        while runs < _MOST_RUNS:
            parties = hosted.coordinator(f"run-{runs}")
            try:
                ready(parties)
                begin(parties)
            except Refused:
                break
            stop_after(parties, 1 + runs % 3)
            for ask in (contribute_again, repeat_first_sum, begin):
                # What a site refuses is no failure of the check: it counts what is drawn.
                with suppress(Refused):
                    ask(hosted.coordinator(parties.run))
            parties.under(RUN).tell("abandon", parties.consortium.parties)
            hosted = after_a_run(hosted)
            runs += 1
    square = 0.0
    for name, times in counted.drawn.items():
        loss = agreement.declaration[name].loss
        assert isinstance(loss, GDP)
        square += times * float(loss.square)
    return gdp_epsilon(square, DELTA), _GRANT, runs


def stop_after(parties: Parties, sums: int) -> None:
    """Open one to three sums and go no further."""
    protocol = parties.protocol
    assert isinstance(protocol, AveragingProtocol)
    identity = Whitening.identity(protocol.features).factors
    parties.sum(protocol.second_moment)
    if sums > 1:
        parties.sum(protocol.whitened_moment, whitening=identity)
    if sums > 2:
        parties.sum(protocol.gradient, iterate=np.zeros(protocol.shape), whitening=identity)


def contribute_again(parties: Parties) -> None:
    """Ask for the first contribution without the set-up that comes before it."""
    protocol = parties.protocol
    assert isinstance(protocol, AveragingProtocol)
    parties.ask(protocol.second_moment, label=0, need=1)


def repeat_first_sum(parties: Parties) -> None:
    ready(parties)
    stop_after(parties, 1)


def _grant() -> Approx:
    return Approx(_GRANT, DELTA)
