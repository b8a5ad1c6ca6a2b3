"""In a simulation every owner's three errors are shown, the owner that gains least first, and its adapted model is
kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from comity.data import Records
from comity.federation.evaluation.adaptation import ADAPTATION_NOTE, OwnComparison, owners_section
from comity.learn.classifiers import LinearClassifier
from comity.methods.averaging import Averaging
from comity.protocol import RunOptions, simulate
from comity.report.result import load_result


def records(count: int, seed: int, sign: float) -> Records:
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, (count, 4)) / 2
    return Records(x, (sign * x[:, 0] + generator.normal(0, 0.05, count) > 0).astype(np.int64))


def test_a_simulation_shows_every_owners_three_errors_and_keeps_its_adapted_model(tmp_path: Path) -> None:
    """South's records say the opposite: the joint model fails there, and the adapted one does not."""
    parties = {"north": records(300, 1, 1.0), "south": records(100, 2, -1.0), "east": records(300, 3, 1.0)}
    protocol = Averaging.over_rows(features=4, sizes={name: len(own) for name, own in parties.items()})
    result = simulate(
        protocol, parties=parties, epsilon=3, delta=1e-6, unit="record", seed=1, test=records(100, 4, 1.0)
    )
    section = result.assessment.sections[-1]
    found = {str(row[0]): row[1:] for row in section.tables[0].rows}
    assert set(found) == set(parties) and found["south"][0] == 100
    gains = [float(str(row[2])) - min(float(str(row[3])), float(str(row[4]))) for row in section.tables[0].rows]
    assert gains == sorted(gains)
    _, alone, joint, adapted = (float(str(one)) for one in found["south"])
    assert joint > 0.7 and adapted < 0.2 and abs(adapted - alone) < 0.1
    fresh, own = records(1000, 5, -1.0), result.kept["south"]["adapted"]
    assert isinstance(own, LinearClassifier)
    assert np.mean(own.predict(fresh.features).astype(int) != fresh.labels) < 0.2
    assert ADAPTATION_NOTE in result.plan.notes
    result.save(tmp_path / "run")
    assert "Each owner: alone, joint, adapted" in (tmp_path / "run" / "report.html").read_text()
    assert load_result(tmp_path / "run").assessment.sections[-1] == section
    without = simulate(
        protocol,
        parties=parties,
        epsilon=3,
        delta=1e-6,
        unit="record",
        seed=1,
        test=records(100, 4, 1.0),
        options=RunOptions(baselines=False),
    )
    assert not without.kept.get("south") and not without.assessment.sections


def test_the_section_says_who_gains_loses_or_could_stay_alone() -> None:
    gains = OwnComparison(100, 0.3, 0.1, 0.1, 0.05, "m")
    loses = OwnComparison(100, 0.1, 0.3, 0.2, 0.05, "m")
    same = OwnComparison(100, 0.1, 0.12, 0.11, 0.05, "m")
    assert "Joining pays" in gains.sentence and "alone do better" in loses.sentence
    assert "Your own records would do as well" in same.sentence
    section = owners_section({"a": gains, "b": loses, "c": same})
    assert [row[0] for row in section.tables[0].rows] == ["b", "c", "a"]
    assert "1 of 3 owners gain by joining and 1 lose" in section.sentences[0] and len(section.sentences) == 2
