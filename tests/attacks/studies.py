"""Studies that an owner with a program of its own may attack: three methods on the same records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from comity.data import Classes, Encoding, Numeric, Records, Schema
from comity.federation.declare.consortium import Consortium
from comity.federation.protocol import Protocol
from comity.methods.averaging import Averaging
from comity.methods.softlabel.method import SoftLabel
from comity.methods.synthetic import SyntheticProtocol
from comity.methods.synthetic.fidelity import Task
from comity.privacy.loss import Approx
from comity.privacy.unit import Unit
from tests.synthetic.consortia import build_synthetic

from .liar import make_numbered_consortium

WIDTH, RECORDS, TEST = 4, 400, 4000
SCHEMA = Schema(tuple(Numeric(f"x{place}", -1, 1, bins=4) for place in range(WIDTH)), Classes("y", ("no", "yes")))


def people(count: int, seed: int) -> pd.DataFrame:
    """A quarter of them are of the second class, which a straight line finds nine times of ten."""
    generator = np.random.default_rng(seed)
    rows = generator.uniform(-1, 1, (count, WIDTH))
    score = rows @ np.array([1.0, -0.8, 0.5, 0.3]) + 0.25 * generator.normal(size=count)
    found = pd.DataFrame(rows, columns=[f"x{place}" for place in range(WIDTH)])
    return found.assign(y=np.where(score > 0.55, "yes", "no"))


@dataclass(frozen=True)
class Case:
    """One method, set up for the records of so many owners."""

    protocol: Protocol
    consortium: Consortium
    records: Mapping[str, Records]
    flipped: Records
    test: Records

    @property
    def liar(self) -> str:
        return self.consortium.parties[-1]

    def error(self, released: Mapping[str, Any]) -> float:
        presented = self.protocol.present(released, self.consortium)
        if isinstance(self.protocol, SyntheticProtocol):
            task = Task(presented.counts.counting)
            made = task.counting.encoding.encode(presented.frame).records
            return task.linear_error(task.make_examples(made), task.make_examples(self.test))
        found = self.protocol.score(presented, self.test)
        assert found is not None
        return found

    @property
    def constant(self) -> float:
        """The error of the most frequent class."""
        labels = np.asarray(self.test.labels)
        return float(1 - np.bincount(labels).max() / len(labels))


def case(method: str, parties: int, seed: int = 0) -> Case:
    encoding: Any = Encoding(SCHEMA, scaling="symmetric", rows="scaled", intercept=True)
    if method == "averaging":
        consortium = make_numbered_consortium(parties, Approx(1.0, 1e-6))
        classes = ("no", "yes")
        protocol: Protocol = Averaging.over_rows(
            features=encoding.width, model="logistic", classes=classes, sizes=RECORDS, encoding=encoding
        )
    elif method == "softlabel":
        consortium = make_numbered_consortium(parties, Approx(40.0 if parties < 10 else 10.0, 1e-6), unit=Unit.PARTY)
        auxiliary = encoding.encode(people(200, 10_000 + seed)).records.features
        protocol = SoftLabel.over_rows(auxiliary=auxiliary, classes=("no", "yes"), sizes=RECORDS, encoding=encoding)
    else:
        consortium = make_numbered_consortium(parties, Approx(1.0, 1e-6))
        protocol = build_synthetic(schema=SCHEMA, rows=parties * RECORDS)
        encoding = protocol.encoding
    made = {
        name: encoding.encode(people(RECORDS, 100 * seed + place)).records
        for place, name in enumerate(consortium.parties)
    }
    own = people(RECORDS, 100 * seed + parties - 1)
    other = encoding.encode(own.assign(y=np.where(own["y"] == "yes", "no", "yes"))).records
    return Case(protocol, consortium, made, other, encoding.encode(people(TEST, 99_000 + seed)).records)
