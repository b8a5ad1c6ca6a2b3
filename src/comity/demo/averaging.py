"""Averaged models in the demonstration: hospitals of different sizes learn one classifier of all their records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd

from comity.data import Encoding, Records, clinic_schema, clinics
from comity.demo.shown import DELTA, EPSILONS, Case, Row, Shown, row_of
from comity.federation.coordinator.parties import Progress
from comity.federation.declaring.consortium import Consortium
from comity.privacy.ledger import Ledger
from comity.privacy.loss import Approx
from comity.privacy.randomness import SeededNoise
from comity.privacy.unit import Unit
from comity.protocols.averaging import Averaging
from comity.report.result import Result
from comity.runtime.local.cohort import Cohort, stacks
from comity.runtime.simulation.simulate import simulate

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
    outcome = simulate(
        protocol(encoding),
        parties=hospitals,
        epsilon=SAVED_EPSILON,
        delta=DELTA,
        unit="record",
        test=test,
        grant=GRANT,
        study="demo hospitals",
        settings={"privacy.unit": "record", "privacy.epsilon": SAVED_EPSILON, "privacy.delta": DELTA},
    )
    result = Result.of(outcome)
    result.save(folder)
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
    "clipped gradients. pure is the default without delta: local models, weighted by public sizes, are summed once. No "
    "coordinator is trusted in either, and nobody sees one hospital's sum.",
)


def visits(encoding: Encoding, count: int, name: str) -> Records:
    table = pd.concat(clinics(count // 100, 100, name).values(), ignore_index=True)
    return encoding.encode(table, where=name).records


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
    """A seeded run on a stack of the hospitals: the same contributions, with masks left out because they cancel."""
    who = Consortium(parties=tuple(hospitals), loss=Approx(epsilon, DELTA), unit=Unit.RECORD)
    cohort = Cohort(
        method,
        who,
        blocks=lambda most: stacks(list(hospitals.values()), most),
        noise=SeededNoise(seed),
        ledger=Ledger.in_memory(unit=who.unit, neighbours=who.neighbours),
        study="demo",
        run=f"{epsilon}-{seed}",
    )
    return method.score(method.present(cohort.released(), who), test)


def averaged(method: Averaging, hospitals: dict[str, Records], test: Records, epsilon: float, seed: int) -> float:
    outcome = simulate(
        method, parties=hospitals, epsilon=epsilon, unit="record", seed=seed, test=test, baselines=False, results=False
    )
    assert outcome.error is not None
    return outcome.error
