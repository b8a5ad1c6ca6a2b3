"""How the demonstrations run a method: seeded, on stacks of the parties; and once without a seed, as a study would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from comity.data import Encoding, Records, clinics
from comity.data.cell_encoding import CellEncoding
from comity.demo.shown import DELTA
from comity.federation.declare.consortium import Consortium
from comity.federation.protocol import Protocol
from comity.privacy.ledger import Ledger
from comity.privacy.randomness import SeededNoise
from comity.report.result import Result
from comity.study.local.cohort import Cohort, stacks
from comity.study.simulation.simulate import simulate


def visits(encoding: Encoding | CellEncoding, count: int, name: str) -> Records:
    """Records of generated visits, a hundred at each of as many clinics as it takes."""
    table = pd.concat(clinics(count // 100, 100, name).values(), ignore_index=True)
    return encoding.encode(table, where=name).records


def presented(method: Protocol, who: Consortium, parties: dict[str, Records], seed: int) -> Any:
    """What a seeded run presents: the same contributions, with masks left out because they cancel."""
    cohort = Cohort(
        method,
        who,
        blocks=lambda most: stacks(list(parties.values()), most),
        noise=SeededNoise(seed),
        ledger=Ledger.in_memory(unit=who.unit, neighbours=who.neighbours),
        study="demo",
        run=f"{who.loss}-{seed}",
    )
    return method.present(cohort.released(), who)


def saved(folder: Path, method: Protocol, *, epsilon: float, **options: Any) -> Result:
    """One run that protects records, with noise as released; its result is in `folder`."""
    settings = {"privacy.unit": "record", "privacy.epsilon": epsilon, "privacy.delta": DELTA}
    outcome = simulate(method, epsilon=epsilon, delta=DELTA, unit="record", settings=settings, **options)
    result = Result.of(outcome)
    result.save(folder)
    return result
