"""Constants of averaging, on training rows of Adult, credit defaults, KDD-99, HAR and CPS, and for several classes of
`experiments.accuracy.several`.

Runs are those of five parties, one of which may collude, with all records in one place: sums are the same, and the
noise on them is what the protocol declares. Errors are from a quarter of the training rows that nothing was learned
from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from comity.entropy import Stream
from comity.learn import in_unit_ball
from comity.methods.averaging import AveragingProtocol, calibration, descent, objectives, regression, second_moments
from comity.methods.averaging.assessment import measure_error
from comity.methods.averaging.calibration import FactorEstimate, calibration_sums
from comity.methods.averaging.descent import first_averaged_round
from comity.methods.averaging.method import ResolvedSolver
from comity.methods.averaging.regression import fit_regression
from comity.methods.averaging.second_moments import Whitening, read_matrices, sum_moments
from comity.privacy import Approx, Neighbours, NoiseSource, Pure, SeededNoise, Unit, simulated_permit
from comity.protocol import Consortium, Release, log_loss
from experiments.accuracy.averaging import COLLUDERS, DELTA, EPSILONS, make_consortium
from experiments.accuracy.training_rows import split_training_rows
from experiments.choose.leaving_out import Choice, Utilities, replace_constants, utility

Floats = NDArray[np.float64]

DATASETS: dict[str, tuple[str, ...]] = {
    "Adult": ("adult-20", "adult-200"),
    "credit defaults": ("credit",),
    "KDD-99": ("kdd",),
    "HAR": ("har",),
}
WIDE = DATASETS | {"Adult": ("adult-20", "adult-200", "adult-600")}
"""For what the number of features decides on."""
PURE = {name: tables for name, tables in DATASETS.items() if name != "HAR"}
NUMBERS: Mapping[str, tuple[str, ...]] = {"CPS": ("cps",)}
SEVERAL: Mapping[str, tuple[str, ...]] = {
    "Adult": ("marriage", "occupation", "education"),
    "rentals": ("rentals",),
    "KDD-99": ("attacks",),
    "MNIST": ("digits",),
    "HAR": ("har", "activities"),
    "generated": ("generated-8", "generated-20"),
}
"""Tables of 5 to 20 classes."""
ABOVE_400: Mapping[str, tuple[str, ...]] = {
    "HAR": ("har", "activities", "har-2"),
    "Adult": ("adult-600",),
    "generated": ("sparse",),
}
# Rows of a table at most, and runs of a case: enough to tell what matters, in minutes.
_ROWS, _REPEATS = 12_000, 2


@dataclass(frozen=True, eq=False)
class PooledTable:
    """A table of five parties with all records in one place."""

    name: str
    protocol: AveragingProtocol
    parties: tuple[tuple[Floats, Floats], ...]
    test: tuple[Floats, Floats]

    @cached_property
    def everything(self) -> tuple[Floats, Floats]:
        features, targets = zip(*self.parties)
        return np.concatenate(features), np.concatenate(targets)

    @cached_property
    def second_moments(self) -> Floats:
        return sum_moments(self.everything[0], self.protocol.blocks)

    def on_terms(self, epsilon: float, delta: float) -> Consortium:
        return Consortium(
            parties=tuple(f"p{place}" for place in range(len(self.parties))),
            loss=Approx(epsilon, delta) if delta else Pure(epsilon),
            unit=Unit.RECORD,
            neighbours=Neighbours.REPLACE,
            colluders=COLLUDERS,
        )

    def worth(self, weights: Floats) -> float:
        """Of a class accuracy less a part of the log loss, of a number R²."""
        features, targets = self.test
        objective = self.protocol.objective
        coef = objective.coefficients(weights)
        error = measure_error(objective, coef, features, targets)
        if objective.kind == "linear":
            return utility(1 - error / float(np.var(targets)))
        scores = features @ coef.T
        shares = softmax(np.hstack([0 * scores, scores]) if len(coef) == 1 else scores, axis=1)
        return utility(1 - error, log_loss(np.asarray(shares, np.float64), targets.astype(np.int64)))


@lru_cache(maxsize=8)
def load_table(name: str) -> PooledTable:
    dealt = make_consortium(split_training_rows(name, _ROWS))
    protocol = dealt.protocol
    parties = tuple(
        (in_unit_ball(own.features), protocol.scale_targets(_require(own.labels))) for own in dealt.parties.values()
    )
    return PooledTable(
        name,
        protocol,
        parties,
        (in_unit_ball(dealt.test.features), protocol.scale_targets(_require(dealt.test.labels))),
    )


def open_sum(release: Release, exact: Floats, consortium: Consortium, source: NoiseSource) -> Floats:
    """A sum over all parties as the coordinator opens it: on the grid, with every party's part of the noise."""
    noise, scale = release.noise, release.scale(consortium)
    assert noise is not None
    units = np.rint(exact / scale.grid).astype(np.int64)
    for _ in consortium.parties:
        units += noise.draw(source, scale, release.shape, permit=simulated_permit(release.name), part=True)
    return np.asarray(units * scale.grid, np.float64)


def run_descent(own: PooledTable, consortium: Consortium, source: NoiseSource) -> Floats:
    """What `AveragingProtocol.descend` computes."""
    protocol, declared = own.protocol, own.protocol.declare(consortium)
    features, targets = own.everything
    noisy, rows = open_sum(declared["second_moment"], own.second_moments, consortium, source), features
    white, spread = Whitening.identity(protocol.features), declared["second_moment"].opened_deviation(consortium)
    for number in range(protocol.whitenings):
        white = protocol.whiten(white, number, noisy, len(features), spread)
        rows = white.map_into_ball(features)
        noisy = open_sum(declared["whitened_moment"], sum_moments(rows, protocol.blocks), consortium, source)
    preconditioner = protocol.precondition(read_matrices(noisy, protocol.blocks), consortium, declared)
    weights, kept, rounds = np.zeros(protocol.shape), np.zeros(protocol.shape), protocol.round_count(consortium)
    first, filled, cut = first_averaged_round(rounds), np.ones(len(features), np.bool_), protocol.clip_norm(consortium)
    for number in range(rounds):
        exact = protocol.objective.gradient(white.unwhiten(weights), features, targets, filled, cut, rows)
        weights = weights - preconditioner.step(open_sum(declared["gradient"], exact, consortium, source))
        if number >= first:
            kept += weights / (rounds - first)
    coef, estimate = white.unwhiten(kept), FactorEstimate()
    for _ in range(protocol.calibrations):
        exact = calibration_sums(protocol.objective, estimate.factor * coef, features, targets, filled)
        noisy_sums = open_sum(declared["calibration"], exact, consortium, source)
        estimate = estimate.update(noisy_sums, declared["calibration"].opened_deviation(consortium))
    return estimate.factor * coef


def run_averages(own: PooledTable, consortium: Consortium, sources: list[NoiseSource]) -> list[Floats]:
    """What `AveragingProtocol.average` computes; local fits are made once for all runs."""
    protocol = own.protocol
    l2, release = protocol.penalty(consortium), protocol.declare(consortium)["models"]
    exact = sum(len(x) * np.atleast_2d(protocol.objective.fit(x, y, l2).weights) for x, y in own.parties)
    return [open_sum(release, np.asarray(exact), consortium, one) / len(own.everything[0]) for one in sources]


def run_moments(own: PooledTable, consortium: Consortium, source: NoiseSource) -> Floats:
    """What `AveragingProtocol.solve` computes."""
    layout, (features, targets) = own.protocol.layout(consortium), own.everything
    classes = own.protocol.model != "linear"
    exact = layout.sum_records(features, 2 * targets - 1 if classes else targets, np.ones(len(features), np.bool_))
    release = layout.release(consortium, 4 * len(features))
    regressed = fit_regression(
        layout,
        open_sum(release, exact, consortium, source),
        records=len(features),
        deviation=release.opened_deviation(consortium),
        classes=classes,
    )
    return regressed.coef[None]


def _choice_in(module: Any, name: str, values: tuple[float, ...]) -> Choice:
    """A constant of another module than `rule`, by gradients."""
    constant = f"{module.__name__.removeprefix('comity.methods.')}.{name}"
    return Choice(constant, values, lambda value: _measure(DATASETS, DELTA, {constant: value}), getattr(module, name))


def choices() -> Iterator[Choice]:
    def by_gradients(datasets: Mapping[str, tuple[str, ...]] = DATASETS, **constants: Any) -> Utilities:
        return _measure(datasets, DELTA, {f"averaging.descent.{name}": value for name, value in constants.items()})

    yield Choice("_STANDING", (8.0, 12.0, 18.0), lambda value: by_gradients(WIDE, _STANDING=value), descent._STANDING)
    yield _choice_in(second_moments, "MAX_SHARE", (0.1, 0.2, 0.34))
    yield _choice_in(second_moments, "WHITENINGS", (0, 1, 2))
    yield Choice("_RIDGE", (0.5, 0.8, 1.2), lambda value: by_gradients(_RIDGE=value), descent._RIDGE)
    yield Choice("ROUNDS", (10, 20, 40), lambda value: by_gradients(ROUNDS=value), descent.ROUNDS)
    yield Choice("_NARROW", (100, 400, 1000), lambda value: by_gradients(WIDE, _NARROW=value), descent._NARROW)
    yield Choice(
        "_LITTLE_NOISE, _MUCH_NOISE",
        ((0.012, 0.1), (0.012, 0.25), (0.0, inf), (0.0, 0.0)),
        lambda value: _measure(
            ABOVE_400,
            DELTA,
            {"averaging.descent._LITTLE_NOISE": value[0], "averaging.descent._MUCH_NOISE": value[1]},
            epsilons=(0.1, 0.3, 1.0, 10.0),
        ),
        (descent._LITTLE_NOISE, descent._MUCH_NOISE),
    )
    yield Choice(
        "_MIN_CLIP, _MAX_CLIP",
        ((0.35, 0.5), (0.5, 0.5), (0.5, 0.7), (0.7, 0.7), (0.6, 1.0)),
        lambda value: by_gradients(_MIN_CLIP=value[0], _MAX_CLIP=value[1]),
        (descent._MIN_CLIP, descent._MAX_CLIP),
    )
    yield Choice(
        "_LOUD, _QUIET",
        ((0.003, 0.0003), (0.01, 0.001), (0.03, 0.003)),
        lambda value: by_gradients(_LOUD=value[0], _QUIET=value[1]),
        (descent._LOUD, descent._QUIET),
    )
    yield Choice(
        "SECOND_MOMENT_SHARE",
        ("0.03", "0.06", "0.1"),
        lambda value: by_gradients(SECOND_MOMENT_SHARE=type(descent.SECOND_MOMENT_SHARE)(value)),
        str(descent.SECOND_MOMENT_SHARE),
    )
    yield Choice(
        "CALIBRATION_SHARE",
        ("0.01", "0.02", "0.05", "0.1"),
        lambda value: by_gradients(CALIBRATION_SHARE=type(descent.CALIBRATION_SHARE)(value)),
        str(descent.CALIBRATION_SHARE),
    )
    yield _choice_in(calibration, "CALIBRATIONS", (0, 1, 2, 3))
    yield _choice_in(calibration, "PRIOR_DEVIATION", (0.2, 0.3, 0.5))
    yield Choice("objectives.softmax clip", (0.35, 0.5, 0.7, 1.0), _with_softmax_clip, 0.5)
    yield Choice(
        "_STEP_CURVATURE",
        (0.125, 0.18, 0.25, 0.35, 0.5, 1.0),
        lambda value: _measure(
            SEVERAL, DELTA, {"averaging.objectives._STEP_CURVATURE": value}, epsilons=(*EPSILONS, 10_000.0)
        ),
        objectives._STEP_CURVATURE,
    )
    yield Choice(
        "_PENALTY",
        (0.1, 0.2, 0.33, 0.6),
        lambda value: _measure(PURE, 0.0, {"averaging.objectives._PENALTY": value}, "average"),
        objectives._PENALTY,
    )
    yield Choice("_FINE, _COARSE", _ENDS, _measure_between, (regression._FINE, regression._COARSE))
    yield Choice(
        "regression.TARGET_WEIGHT",
        (0.25, 0.5, 1.0),
        lambda value: _measure(
            NUMBERS,
            DELTA,
            {"averaging.regression.TARGET_WEIGHT": value, "averaging.regression._MAX_SQUARE": 1 + value**2},
        ),
        regression.TARGET_WEIGHT,
    )


_ENDS = ((0.0, 0.01), (0.001, 0.01), (0.0, 0.02), (0.001, 0.02), (0.0, 0.04), (0.001, 0.04), (0.0, 0.0))


def _measure_between(ends: tuple[float, float]) -> Utilities:
    """Moments where their noise lies between two ends, averages elsewhere."""
    out: dict[str, dict[str, float]] = {}
    for dataset, tables in PURE.items():
        out[dataset] = {}
        for name in tables:
            for epsilon in EPSILONS:
                own, consortium = load_table(name), load_table(name).on_terms(epsilon, 0.0)
                release = own.protocol.layout(consortium).release(consortium, 4 * len(own.everything[0]))
                noise = release.opened_deviation(consortium) * sqrt(own.protocol.features) / len(own.everything[0])
                solver: ResolvedSolver = "moments" if ends[0] < noise <= ends[1] else "average"
                out[dataset][f"{name} {epsilon:g}"] = _measure_pure(name, epsilon, solver)
    return out


@lru_cache(maxsize=64)
def _measure_pure(name: str, epsilon: float, solver: ResolvedSolver) -> float:
    return _measure_case(name, epsilon, 0.0, solver)


def _with_softmax_clip(clip: float) -> Utilities:
    return {
        dataset: {
            f"{name} {epsilon:g}": _measure_case(name, epsilon, DELTA, "gradient", clip=clip)
            for name in tables
            for epsilon in EPSILONS
        }
        for dataset, tables in SEVERAL.items()
    }


def _measure(
    datasets: Mapping[str, tuple[str, ...]],
    delta: float,
    constants: Mapping[str, Any],
    solver: ResolvedSolver | None = None,
    epsilons: tuple[float, ...] = EPSILONS,
) -> Utilities:
    with replace_constants(constants):
        return {
            dataset: {
                f"{name} {epsilon:g}": _measure_case(name, epsilon, delta, solver)
                for name in tables
                for epsilon in epsilons
            }
            for dataset, tables in datasets.items()
        }


def _measure_case(
    name: str, epsilon: float, delta: float, solver: ResolvedSolver | None = None, clip: float | None = None
) -> float:
    """The mean worth of a few runs."""
    from dataclasses import replace

    own = load_table(name)
    if clip is not None:
        own = replace(own, protocol=replace(own.protocol, clip=clip))
    if solver is not None:
        own = replace(own, protocol=replace(own.protocol, solver=solver))
    consortium = own.on_terms(epsilon, delta)
    sources: list[NoiseSource] = [
        SeededNoise(int(Stream.public("choose", name, str(epsilon), number).words(1)[0])) for number in range(_REPEATS)
    ]
    solver = solver or own.protocol.solver_for(consortium)
    if solver == "average":
        models = run_averages(own, consortium, sources)
    else:
        models = [(run_descent if solver == "gradient" else run_moments)(own, consortium, source) for source in sources]
    return float(np.mean([own.worth(one) for one in models]))


def _require(labels: NDArray[Any] | None) -> NDArray[Any]:
    assert labels is not None
    return labels
