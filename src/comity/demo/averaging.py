"""Averaged models in the demonstration: hospitals of different sizes learn one classifier of all their records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from comity.data import Encoding, Records, clinic_schema
from comity.demo.runs import presented, saved, visits
from comity.demo.shown import DELTA, EPSILONS, Case, Row, Shown, row_of
from comity.federation.coordinator.parties import Progress
from comity.federation.declare.consortium import Consortium
from comity.methods.averaging import Averaging
from comity.privacy.loss import Approx
from comity.privacy.unit import Unit
from comity.study.simulation.simulate import simulate

NAME = "averaging"
METHODS = ("gradient", "pure")
SIZES = {"ashford": 900, "birkdale": 800, "calder": 700, "dunmore": 600, "elstow": 500, "farleigh": 300}
TESTED = 2000
# Local models are fitted anew by each whole run.
WHOLE_RUNS = 3
SAVED_EPSILON, GRANT = 1.0, 3.0


def demonstrate(folder: Path, said: Progress, repeats: int) -> Shown:
    """Both solvers at every ε, and one run without a seed in `folder`."""
    said("averaging: generating records")
    encoding = Encoding(replace(clinic_schema("readmitted"), identifier=None), rows="normalised", intercept=True)
    hospitals = {name: visits(encoding, size, f"demo, {name}") for name, size in SIZES.items()}
    test = visits(encoding, TESTED, "demo, averaging test")
    rows = tuple(measured(encoding, hospitals, test, repeats, said))
    said("averaging: one run without a seed")
    result = saved(
        folder,
        protocol(encoding),
        epsilon=SAVED_EPSILON,
        parties=hospitals,
        test=test,
        grant=GRANT,
        study="demo hospitals",
    )
    about = (
        f"{len(SIZES)} generated hospitals with {min(SIZES.values())} to {max(SIZES.values())} visits each; will the "
        f"patient be readmitted? Tested on {TESTED:,} visits at other hospitals."
    )
    return Shown(
        NAME,
        "Averaged models",
        "one classifier of all records, by sums that are opened with shared noise (after Pathak, Rane, Raj 2010)",
        "a record, replaced",
        METHODS,
        (Case("hospitals", about, rows),),
        NOTES,
        f"{repeats} draws of the noise (pure: {min(repeats, WHOLE_RUNS)} whole runs)",
        result,
    )


NOTES = (
    "gradient is the default with delta above 0: the hospitals descend together, and each round opens one noisy sum of "
    "clipped gradients; two more sums say how sure the model is. pure is the default without delta: local models, "
    "weighted by public sizes, are summed once. No coordinator is trusted in either, and nobody sees one hospital's "
    "sum.",
)


def protocol(encoding: Encoding) -> Averaging:
    return Averaging(features=encoding.width, classes=("no", "yes"), sizes=SIZES, encoding=encoding)


def measured(
    encoding: Encoding, hospitals: dict[str, Records], test: Records, repeats: int, said: Progress
) -> list[Row]:
    method, records = protocol(encoding), list(hospitals.values())
    compared = method.compare(records, test)
    rows = []
    for name in METHODS:
        for at, epsilon in enumerate(EPSILONS):
            said(f"averaging: {name}, error against epsilon {at}/{len(EPSILONS)}")
            if name == "gradient":
                errors = [descended(method, hospitals, test, epsilon, seed) for seed in range(repeats)]
            else:
                whole = range(min(repeats, WHOLE_RUNS))
                errors = [averaged(method, hospitals, test, epsilon, seed) for seed in whole]
            rows.append(row_of(NAME, "hospitals", name, epsilon, errors, compared))
    return rows


def descended(method: Averaging, hospitals: dict[str, Records], test: Records, epsilon: float, seed: int) -> float:
    who = Consortium(parties=tuple(hospitals), loss=Approx(epsilon, DELTA), unit=Unit.RECORD)
    return method.score(presented(method, who, hospitals, seed), test)


def averaged(method: Averaging, hospitals: dict[str, Records], test: Records, epsilon: float, seed: int) -> float:
    outcome = simulate(
        method, parties=hospitals, epsilon=epsilon, unit="record", seed=seed, test=test, baselines=False, results=False
    )
    assert outcome.error is not None
    return outcome.error
