"""`comity audit --all`: every mechanism, every default method, published ones, and the broken twins of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from comity.audit.capture import Coordinate, capture
from comity.audit.claim import CONFIDENCE, Effort
from comity.audit.controls import every_control
from comity.audit.mechanisms import NUMBER, lattice_checks, mechanism_claims
from comity.audit.neighbours import corner_rows
from comity.audit.row import Audit, Check, Claim
from comity.audit.study import NeighbourRecords, debit_check, encode, find_pair, measure_pair, sensitivity_check
from comity.data import Bounded, Classes, Numeric, Schema
from comity.federation.coordinator.parties import Parties
from comity.federation.part import EVALUATION
from comity.methods.averaging import Averaging
from comity.methods.averaging.method import AveragingProtocol
from comity.methods.averaging.second_moments import Whitening
from comity.methods.softlabel import SoftLabel
from comity.methods.summary import Summary
from comity.methods.synthetic import Synthetic
from comity.methods.vertical import Vertical
from comity.privacy.randomness import ReleasedNoise

if TYPE_CHECKING:
    from comity.study.study import Study

Progress = Callable[[str], None]

_PARTIES = ("ash", "birch", "cedar")
_EPSILON, _DELTA = 1.0, 1e-6
_CLASSES = Classes("outcome", ("no", "yes"))
_PLANE = (Numeric("x", -1, 1), Numeric("y", -1, 1))


@dataclass(frozen=True, eq=False)
class Case:
    """A small study whose strongest neighbours are known, or found among `rows`. `party` is the one that changes, and
    `coordinate` a hostile coordinator, where its messages decide how far values move."""

    name: str
    study: Study
    rows: pd.DataFrame
    party: str
    coordinate: Coordinate | None = None


def method_cases() -> Iterator[Case]:
    """Every default method, over as few columns as it takes: the fewer numbers carry noise, the more an audit sees."""
    plane, line = Schema(_PLANE, _CLASSES), Schema(_PLANE[:1], _CLASSES)
    numbers = Schema(_PLANE, Bounded("outcome", -1, 1))
    terms = {"epsilon": _EPSILON, "delta": _DELTA}
    averaging = Averaging(plane, sizes=400, intercept=False)
    yield Case("averaging", averaging.study(_PARTIES, **terms), _circle(24), "ash", ask_undecided)
    added = averaging.study(_PARTIES, **terms, neighbours="add-remove")
    yield Case("averaging, records added", added, _circle(8), "ash", ask_undecided)
    linear = Averaging(numbers, sizes=400, intercept=False)
    yield Case("averaging, linear", linear.study(_PARTIES, **terms), _numbers(), "ash")
    yield Case("averaging, linear, pure", linear.study(_PARTIES, epsilon=_EPSILON), _numbers(), "ash")
    local = Averaging(line, sizes=1000, intercept=False, model="svm", solver="average", l2=0.1)
    yield Case("averaging, local models, pure", local.study(_PARTIES, epsilon=_EPSILON), corner_rows(line, 6), "ash")
    evaluated = averaging.study(_PARTIES, **terms, evaluation={})
    yield Case("averaging with an evaluation", evaluated, _circle(24), "ash", ask_undecided)
    synthetic = Synthetic(plane)
    yield Case("synthetic", synthetic.study(_PARTIES, **terms), corner_rows(plane, 8), "ash")
    yield Case("synthetic, pure", synthetic.study(_PARTIES, epsilon=_EPSILON), corner_rows(plane, 8), "ash")
    wide = Schema(tuple(Numeric(f"x{place}", -1, 1) for place in range(8)), Classes("outcome", tuple("abcdef")))
    public = corner_rows(wide, 60, "public").drop(columns="outcome")
    soft = SoftLabel(wide, auxiliary=public, sizes=12, statistic="class-sums")
    names = tuple(f"p{place:02d}" for place in range(20))
    yield Case("soft labels", soft.study(names, **terms), corner_rows(wide, 12), names[0])
    summary = Summary(plane, records=10, sizes=400, deliver="weights")
    bought = summary.study((*_PARTIES, "elm"), consumer="elm", epsilon=_EPSILON, delta=_DELTA)
    yield Case("summary, an owner", bought, _circle(12), "ash")
    yield Case("summary, the consumer", bought, _circle(12), "elm")
    held = {"ash": ["x", "outcome"], "birch": ["y"]}
    vertical = Vertical(plane, columns=held)
    yield Case("vertical", vertical.study(tuple(held), **terms), _grid(), "ash")
    quadratic = Vertical(plane, columns=held, solver="quadratic")
    yield Case("vertical, quadratic", quadratic.study(tuple(held), **terms), _grid(), "ash")


def ask_undecided(parties: Parties) -> None:
    """A coordinator of averaging that asks for every gradient at weights of zero, where a record of either class is
    half wrong and residuals are as large as the clip allows; under a whitening that makes all rows as long as the ball
    allows; and for calibration at weights for which records are as wrong as can be."""
    protocol, declaration = parties.protocol, parties.declaration
    assert isinstance(protocol, AveragingProtocol)
    long = 1000.0 * Whitening.identity(protocol.features).factors
    zero, far = np.zeros(protocol.shape), np.full(protocol.shape, -1000.0)
    parties.sum(protocol.second_moment)
    for _ in range(declaration["whitened_moment"].times):
        parties.sum(protocol.whitened_moment, whitening=long)
    for _ in range(declaration["gradient"].times):
        parties.sum(protocol.gradient, iterate=zero, whitening=long)
    for _ in range(declaration["calibration"].times):
        parties.sum(protocol.calibration, iterate=far)
    if parties.agreement.model_evaluation is not None:
        parties.agreement.model_evaluation.measure(parties.under(EVALUATION), {"model": far})


def audit_all(effort: Effort, *, progress: Progress | None = None, only: Sequence[str] = ()) -> Audit:
    """Attack everything, at one confidence for the whole table. `only` names cases to leave the rest out."""
    cases = [case for case in method_cases() if not only or case.name in only]
    # Halves for claims and for controls, which are tests too.
    each = 1 - (1 - CONFIDENCE) / 2 / (NUMBER + len(cases))
    claims: list[Claim] = []
    checks: list[Check] = []
    if not only:
        if progress is not None:
            progress("mechanisms")
        claims += mechanism_claims(effort, each)
        checks += lattice_checks()
    for case in cases:
        if progress is not None:
            progress(case.name)
        agreement = case.study.agreement
        pair = find_pair(case.study, agreement, case.party, rows=case.rows, coordinate=case.coordinate)
        claims.append(measure_pair(case.name, agreement, pair, case.party, effort=effort, confidence=each))
        checks.append(debit_check(case.name, agreement, pair.first, case.party))
        checks.append(sensitivity_check(case.name, pair))
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
    study = Synthetic(Schema(_PLANE, _CLASSES)).study(_PARTIES, epsilon=_EPSILON, delta=_DELTA)
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


def _circle(angles: int) -> pd.DataFrame:
    """Rows in every direction of the plane, up to the sides of the square, of both classes."""
    turn = 2 * np.pi * np.arange(angles) / angles
    rows = pd.DataFrame({"x": np.cos(turn), "y": np.sin(turn)})
    rows = rows.div(rows.abs().max(axis=1), axis=0)
    return pd.concat([rows.assign(outcome=label) for label in _CLASSES.values], ignore_index=True)


def _grid() -> pd.DataFrame:
    """Rows at the sides of the square, of both classes."""
    places = [(x, y) for x in np.linspace(-1, 1, 5) for y in (-1.0, 1.0)]
    rows = pd.DataFrame(places, columns=["x", "y"])
    return pd.concat([rows.assign(outcome=label) for label in _CLASSES.values], ignore_index=True)


def _numbers() -> pd.DataFrame:
    """Corners and sides of the square with either end of the target."""
    rows = _grid().drop(columns="outcome").drop_duplicates()
    return pd.concat([rows.assign(outcome=end) for end in (-1.0, 1.0)], ignore_index=True)
