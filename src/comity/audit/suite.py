"""`comity audit --all`: every mechanism, every default method, published ones, and the broken twins of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from comity.audit.capture import capture
from comity.audit.cases import DELTA, EPSILON, PARTIES, PLANE, method_cases, published_cases
from comity.audit.claim import CONFIDENCE, Effort
from comity.audit.controls import every_control
from comity.audit.mechanisms import NUMBER, lattice_checks, mechanism_claims
from comity.audit.published import PUBLISHED, corrected_loss, published_claims
from comity.audit.row import Audit, Check, Claim
from comity.audit.study import NeighbourRecords, debit_check, encode, find_pair, measure_pair, sensitivity_check
from comity.methods.synthetic import Synthetic
from comity.privacy.randomness import ReleasedNoise

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
    each = 1 - (1 - CONFIDENCE) / 2 / (NUMBER + PUBLISHED + len(chosen))
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
        pair = find_pair(case.study, agreement, case.party, rows=case.rows, coordinate=case.coordinate)
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
        checks.append(debit_check(case.name, agreement, pair.first, case.party))
        checks.append(sensitivity_check(case.name, pair))
    if not only:
        if progress is not None:
            progress("published mechanisms")
        claims += published_claims(effort, each)
    if progress is not None:
        progress("wiring and controls")
    if not only:
        checks.append(wiring_check(24))
    return Audit(
        "every mechanism and method",
        CONFIDENCE,
        tuple(claims),
        tuple(checks),
        every_control(1 - (1 - CONFIDENCE) / 2) if not only else (),
    )


def wiring_check(runs: int) -> Check:
    """Runs of real hosts with masks and noise: the variance of what is opened about what it would be without noise,
    beside the declared one. A part of the noise that is lost or doubled on the way shows here and nowhere else."""
    study = Synthetic(PLANE).study(PARTIES, epsilon=EPSILON, delta=DELTA)
    agreement = study.agreement
    made = NeighbourRecords(study.schema, agreement.consortium, "ash", by_columns=False, group=1, others=12)
    records = encode(agreement, made.base)
    exact = capture(agreement, records).opened[0]
    squares = [
        ((capture(agreement, records, noise=ReleasedNoise).opened[0].units - exact.units) ** 2).ravel()
        for _ in range(runs)
    ]
    scale = exact.release.scale(agreement.consortium)
    declared = scale.part**2 * agreement.consortium.size
    found = np.concatenate(squares).astype(float) / declared
    ratio, error = float(found.mean()), float(np.sqrt(2 / found.size))
    held = abs(ratio - 1) < 5 * error
    return Check("wiring: opened minus exact has the declared variance", held, f"{ratio:.4f} ± {error:.4f} of it")
