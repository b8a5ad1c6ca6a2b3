"""`comity audit --all`: every mechanism, every default method, published ones, and the broken twins of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from comity.audit.auction import AUCTION, auction_claims
from comity.audit.batches import batch_checks, centring_control
from comity.audit.capture import capture
from comity.audit.cases import DELTA, EPSILON, PARTIES, PLANE, method_cases, published_cases
from comity.audit.claim import CONFIDENCE, Effort
from comity.audit.controls import every_control
from comity.audit.mechanisms import NUMBER, lattice_checks, mechanism_claims
from comity.audit.published import PUBLISHED, corrected_loss, published_claims
from comity.audit.row import Audit, Check, Claim, Control
from comity.audit.stopping import forgetting_control, stopping_check
from comity.audit.study import (
    NeighbourRecords,
    debit_check,
    encode,
    find_pair,
    measure_pair,
    pair_checks,
    sensitivity_check,
)
from comity.methods.synthetic import Synthetic
from comity.privacy.permit import Permit
from comity.privacy.randomness import Integers, ReleasedNoise, Shape

Progress = Callable[[str], None]


def audit_all(effort: Effort, *, progress: Progress | None = None, only: Sequence[str] = ()) -> Audit:
    """Attack everything, at one confidence for the whole table. `only` names cases to leave the rest out."""
    chosen = [
        (case, corrected)
        for cases, corrected in ((method_cases(), False), (published_cases(), True))
        for case in cases
        if not only or case.name in only
    ]
    # Halves for claims and for controls, which are tests too.
    each = 1 - (1 - CONFIDENCE) / 2 / (NUMBER + AUCTION + PUBLISHED + len(chosen))
    claims: list[Claim] = []
    checks: list[Check] = []
    if not only:
        if progress is not None:
            progress("mechanisms")
        claims += mechanism_claims(effort, each)
        checks += lattice_checks()
    for case, corrected in chosen:
        if progress is not None:
            progress(case.name)
        agreement = case.study.agreement
        pair = find_pair(case.study, agreement, case.party, rows=case.rows, held_out=case.held_out)
        claims.append(
            measure_pair(
                case.name,
                agreement,
                pair,
                case.party,
                effort=effort,
                confidence=each,
                claimed=corrected_loss(agreement) if corrected else None,
            )
        )
        if corrected:
            checks += [debit_check(case.name, agreement, pair.first, case.party), sensitivity_check(case.name, pair)]
        else:
            checks += pair_checks(case.name, case.study, agreement, pair, case.party, case.rows)
    if not only:
        if progress is not None:
            progress("auctions and published mechanisms")
        claims += auction_claims(effort, each)
        claims += published_claims(effort, each)
    controls: tuple[Control, ...] = ()
    if not only:
        if progress is not None:
            progress("wiring, batches and controls")
        checks += [*wiring_checks(24), *batch_checks(), stopping_check()]
        controls = (*every_control(1 - (1 - CONFIDENCE) / 2), centring_control(), forgetting_control())
    return Audit("every mechanism and method", CONFIDENCE, tuple(claims), tuple(checks), controls)


class KeptNoise(ReleasedNoise):
    """Noise as it is released, by a party that remembers what it drew."""

    def __init__(self) -> None:
        self.drawn: list[Integers] = []

    def rounded_gaussian(self, sigma: float, shape: Shape, *, permit: Permit) -> Integers:
        self.drawn.append(super().rounded_gaussian(sigma, shape, permit=permit))
        return self.drawn[-1]


def wiring_checks(runs: int) -> list[Check]:
    """Runs of real hosts with masks and noise: the variance of what is opened about what it would be without noise,
    beside the declared one. A part of the noise that is lost or doubled on the way shows here and nowhere else.

    A colluding party subtracts its part. What is left has to be as wide as the parts that the sum is private by.
    """
    # Equal edges: one sum, so that a party's draws are its part of this sum.
    study = Synthetic(PLANE, edges="equal").study(PARTIES, epsilon=EPSILON, delta=DELTA, colluders=1)
    agreement = study.agreement
    consortium = agreement.consortium
    made = NeighbourRecords(study.schema, consortium, "ash", by_columns=False, group=1, others=12)
    records = encode(agreement, made.base)
    exact = capture(agreement, records).opened[0]
    left, without_own = [], []
    for _ in range(runs):
        sources: list[KeptNoise] = []

        def source(sources: list[KeptNoise] = sources) -> KeptNoise:
            sources.append(KeptNoise())
            return sources[-1]

        noise = capture(agreement, records, noise=source).opened[0].units - exact.units
        # Hosts take their sources in the parties' order, the coordinator the last.
        own = sources[consortium.size - 1].drawn
        left.append(noise.ravel())
        without_own.append((noise - sum(own)).ravel())
    part, parts = exact.release.scale(consortium).part, exact.release.parts(consortium)
    return [
        _variance_check("wiring: opened minus exact has the declared variance", left, part**2 * consortium.size),
        _variance_check(
            "wiring: less a colluding party's part it is as wide as the privacy of the sum needs",
            without_own,
            part**2 * parts,
        ),
    ]


def _variance_check(name: str, noise: Sequence[Integers], declared: float) -> Check:
    found = np.concatenate(noise).astype(float) ** 2 / declared
    ratio, error = float(found.mean()), float(np.sqrt(2 / found.size))
    return Check(name, abs(ratio - 1) < 5 * error, f"{ratio:.4f} ± {error:.4f} of it")
