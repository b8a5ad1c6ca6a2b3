"""Averaged models on Adult at (1, 1e-5) for a record, against federated averaging at the same loss.

Ours is a whole run in one process, hosts, signatures, masks and ledgers included, with noise for one colluder. The
anchors of `averaging_anchors` are bare loops over arrays; their seconds are of the arithmetic alone, their bytes those
of the arrays. Seconds are of the processor, ours those of all parties and the coordinator; `wall` is the time on the
clock. The last row has every owner by itself, with objective perturbation, beside our pure average.
"""

from __future__ import annotations

from time import perf_counter, process_time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from comity.data import Records, split_evenly
from comity.entropy import Stream
from comity.methods.averaging import Averaging, penalty_for
from comity.methods.averaging.calibration import CALIBRATIONS
from comity.methods.averaging.descent import ROUNDS
from comity.methods.averaging.second_moments import WHITENINGS
from comity.privacy import zcdp_rho
from comity.protocol import Result, RunOptions, Terms, simulate
from experiments.bench.methods import averaging_anchors as anchors
from experiments.data.adult_bins import Adult, adult

EPSILON, DELTA = 1.0, 1e-5


def measure(*, quick: bool = False) -> list[dict[str, Any]]:
    """Rows for 5 and 50 parties. COMITY_DATA names the folder of the data."""
    with threadpool_limits(1, user_api="blas"):
        data = adult()
        repeats = 1 if quick else 3
        rows = []
        for count in (5,) if quick else (5, 50):
            rows += compared(data, count, repeats=repeats if count < 10 else 1, quick=quick)
        return [*rows, alone(data, 5, repeats=repeats)]


def dealt(data: Adult, count: int) -> dict[str, Records]:
    parts = split_evenly(len(data.train), count, Stream.public("bench averaging", "split", count))
    labels = np.asarray(data.train.labels)
    return {f"p{place}": Records(data.train.features[own], labels[own]) for place, own in enumerate(parts)}


def compared(data: Adult, count: int, *, repeats: int, quick: bool) -> list[dict[str, Any]]:
    parties, rho = dealt(data, count), zcdp_rho(EPSILON, DELTA)
    errors, seconds, walls = [], [], []
    for seed in range(repeats):
        start, clock = process_time(), perf_counter()
        outcome = ours(data, parties, DELTA, seed)
        seconds.append(process_time() - start)
        walls.append(perf_counter() - clock)
        errors.append(_error(outcome))
    sent = outcome.transcript.bytes
    rows = []
    for name, method in (("client noise", anchors.client_noise), ("local noise", anchors.local_noise)):
        start = process_time()
        anchor = anchors.best(method, list(parties.values()), data.test, rho, repeats=repeats, quick=quick)
        anchor_seconds = (process_time() - start) / (len(anchors.settings(quick)) * repeats)
        rows.append(
            {
                "case": f"{count} parties, against federated averaging with {name}",
                "ours": float(np.mean(errors)),
                "anchor": anchor.error,
                "ratio": anchor.error / float(np.mean(errors)),
                "unit": "test error",
                "rounds": 1 + WHITENINGS + ROUNDS + CALIBRATIONS,
                "anchor_rounds": anchor.rounds,
                "exchanges": outcome.transcript.rounds,
                "megabytes": sent / 1e6,
                "anchor_megabytes": anchor.sent / 1e6,
                "seconds": float(np.mean(seconds)),
                "wall": float(np.mean(walls)),
                "anchor_seconds": anchor_seconds,
                "repeats": repeats,
                "note": f"({EPSILON:g}, {DELTA:g}) for a record; the anchor's best of its settings on the test records "
                f"({anchor.setting}); its bytes are those of its arrays",
            }
        )
    return rows


def alone(data: Adult, count: int, *, repeats: int) -> dict[str, Any]:
    """Every owner's own private fit, beside the pure average of all."""
    parties = dealt(data, count)
    errors = [_error(ours(data, parties, 0.0, seed)) for seed in range(repeats)]
    single = []
    for number in range(repeats):
        for name, own in parties.items():
            l2 = penalty_for(2 * data.features / (len(own) * EPSILON), initial_residual=0.5)
            stream = Stream.public("bench averaging", "objective", name, number)
            weights = anchors.objective_perturbation(own, EPSILON, l2, stream)
            single.append(anchors.wrong(weights, data.test))
    return {
        "case": f"{count} parties, pure, against each owner alone by objective perturbation",
        "ours": float(np.mean(errors)),
        "anchor": float(np.mean(single)),
        "ratio": float(np.mean(single) / np.mean(errors)),
        "unit": "test error",
        "rounds": 1,
        "anchor_rounds": 0,
        "repeats": repeats,
        "note": f"eps {EPSILON:g} for a record, delta 0; one owner has a {count}th of the records",
    }


def _error(outcome: Result) -> float:
    assert outcome.error is not None, "a run with test records has an error"
    return outcome.error


def ours(data: Adult, parties: dict[str, Records], delta: float, seed: int) -> Result:
    built = Averaging.over_rows(features=data.features, sizes={name: len(own) for name, own in parties.items()})
    return simulate(
        built,
        parties=parties,
        epsilon=EPSILON,
        delta=delta,
        unit="record",
        seed=seed,
        test=data.test,
        terms=Terms(name="bench averaging"),
        options=RunOptions(baselines=False),
    )
