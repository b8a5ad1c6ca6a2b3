"""How far noise moves each weight: estimated from what was opened, beside what fresh noise does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from comity.data import Classes, Encoding, Numeric, Records, Schema
from comity.errors import DataError
from comity.federation.declare.consortium import EVERYONE
from comity.learn.classifiers import LinearClassifier, find_strongest
from comity.methods.averaging import Averaging
from comity.study.simulation.simulate import RunOptions, simulate

NAMES, RUNS = ("ash", "birch", "cedar"), 24


def run(seed: int, classes: int = 2, names: tuple[str, ...] = NAMES) -> Any:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(3000, 6)) * np.array([1.0, 0.5, 0.3, 0.1, 0.0, 1.0]) / 4
    scores = rows @ np.linspace(-12, 12, 6 * classes).reshape(6, classes) + rng.gumbel(size=(3000, classes))
    records = {name: Records(rows[at::3], scores[at::3].argmax(axis=1)) for at, name in enumerate(names)}
    return simulate(
        Averaging.over_rows(
            features=6,
            sizes=1000,
            classes=tuple(map(str, range(classes))),
            model="logistic" if classes == 2 else "softmax",
        ),
        parties=records,
        epsilon=2.0,
        delta=1e-6,
        unit="record",
        seed=seed,
        options=RunOptions(baselines=False, hosts=False),
    )


@pytest.mark.parametrize("classes", [2, 3])
def test_deviations_are_those_of_fresh_noise(classes: int) -> None:
    models = [run(seed, classes).presented for seed in range(RUNS)]
    found: NDArray[np.float64] = np.std([model.weights for model in models], axis=0)
    estimated = np.median([model.deviations for model in models], axis=0)
    assert found.shape == estimated.shape == models[0].weights.shape
    # The deviation of so few runs is known to 15 %. Of weights far above their noise the calibration's counts too.
    near = np.abs(np.mean([model.weights for model in models], axis=0)) < 10 * estimated
    assert near.sum() >= 2 * found.shape[0]
    ratios = (found / estimated)[near]
    assert ratios.min() > 0.5 and ratios.max() < 2
    # The fifth column is always zero: its weight is noise alone, and steps in its direction are the longest.
    hidden = [np.abs(model.weights[:, 4]) < 3 * model.deviations[:, 4] for model in models]
    assert np.mean(hidden) > 0.8


def test_a_file_keeps_the_deviations(tmp_path: Path) -> None:
    model = run(1).presented
    model.save(tmp_path)
    again = LinearClassifier.load(tmp_path)
    np.testing.assert_array_equal(again.deviations, model.deviations)
    (tmp_path / "weights.npz").unlink()
    np.savez(tmp_path / "weights.npz", coef=model.weights, deviations=-np.asarray(model.deviations))
    with pytest.raises(DataError, match="deviations must be one finite number >= 0 for each weight"):
        LinearClassifier.load(tmp_path)


def test_what_noise_explains_comes_last() -> None:
    encoding = Encoding(Schema(tuple(Numeric(name, 0, 1) for name in "abc"), Classes("y", ("0", "1"))), rows="scaled")
    width = encoding.width
    weights, deviations = np.arange(1.0, width + 1)[None], np.full((1, width), 0.1)
    deviations[0, 2] = 10.0
    shown = find_strongest(LinearClassifier(weights, ("0", "1"), encoding, deviations=deviations))
    assert [one.label for one in shown][-1] == encoding.names[2] and shown[-1].deviation == 10.0
    assert shown[0].value == max(one.value for one in shown[:-1])
    section = LinearClassifier(weights, ("0", "1"), encoding, deviations=deviations).section()
    assert not any("not known" in text for text in section.sentences)


def test_what_a_party_receives_tells_the_deviations_too() -> None:
    """A party's folder of results is the coordinator's: both show the noise of each weight."""
    found = run(1)
    _, consortium = found.terms
    protocol = Averaging.over_rows(features=6, sizes=1000, classes=("0", "1"))
    assert protocol.declare(consortium)["deviations"].to == EVERYONE
    received = protocol.present({name: found.released[name] for name in ("model", "deviations")}, consortium)
    assert isinstance(received, LinearClassifier)
    np.testing.assert_array_equal(received.deviations, found.presented.deviations)


def test_one_owner_alone_has_deviations_too() -> None:
    assert run(1, names=("ash",)).presented.deviations is not None
