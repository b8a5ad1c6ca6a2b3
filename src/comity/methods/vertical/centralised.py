"""Simulation only: baselines, and the releases of a run computed centrally, with all columns in one place.

The baselines are the errors of a constant, of the label's holder alone, and of all columns pooled without noise. The
central releases serve comparisons at sizes where a secure run would take hours. A secure run opens the exact weighted
entries (with rlwe rarely one unit off) and sums of responses up to the rounding of the waves, plus one part of the
noise per party. The central releases are the same, and a test compares the two number by number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from comity.data import Records
from comity.data.schemas.reading import canonical_id
from comity.federation.declare.consortium import Consortium
from comity.federation.evaluation.assessment import Baseline
from comity.learn.fits import fit_logistic
from comity.learn.standardised import CONSTANT, Standardised, default_penalty
from comity.methods.vertical.curves import CURVES, WIDEST, Response
from comity.methods.vertical.design import LABEL, PLACES, Design, scale_target
from comity.methods.vertical.moments import MomentEntries, fit_regression
from comity.methods.vertical.rounds import Rounds, Whitening, constant_units
from comity.privacy.permit import simulated_permit
from comity.privacy.randomness import NoiseSource

if TYPE_CHECKING:
    from comity.methods.vertical.method import GradientRegression, VerticalRegression

Floats = NDArray[np.float64]

_L2 = 1e-6
"""Without a constant: enough for classes that can be separated. Not tuned on data."""


def measure_error(design: Design, coef: Floats, test: Records) -> float:
    """Share of wrong classes, or the mean squared error of a target scaled to [−1, 1], over encoded whole rows."""
    scores = test.features @ coef
    assert test.labels is not None
    if design.classes:
        return float(np.mean((scores > 0) != (test.labels > 0)))
    return float(np.mean((scores - scale_target(design.schema, test.labels)) ** 2))


def pool_columns(design: Design, parties: Sequence[Records]) -> Floats:
    """The columns of z of all parties, over the rows that all of them share."""
    orders: list[NDArray[np.int64] | None] = [None] * len(parties)
    ids = [None if records.ids is None else [canonical_id(one) for one in records.ids] for records in parties]
    if all(found is not None for found in ids):
        common = set.intersection(*(set(found) for found in ids if found is not None))
        orders = []
        for found in ids:
            assert found is not None
            place = {one: at for at, one in enumerate(found)}
            orders.append(np.array([place[one] for one in sorted(common)], np.int64))
    parts = []
    for party, records, order in zip(design.parties, parties, orders):
        matrix = design.matrix(records, party)
        parts.append(matrix if order is None else matrix[order])
    return np.hstack(parts)


def _fit(design: Design, rows: Floats) -> Floats:
    """Coefficients of encoded rows without noise: least squares, or a logistic regression."""
    if not design.classes:
        entries = MomentEntries.of(design)
        return fit_regression(entries, entries.exact(rows), len(rows), 0.0).coef
    features = rows[:, design.features]
    labels = (rows[:, design.label.start] > 0).astype(np.float64)
    if not design.intercept:
        return np.asarray(design.mapping @ fit_logistic(features, labels, _L2, tol=1e-7).weights, np.float64)
    columns = Standardised.of(features)
    fit = fit_logistic(columns.with_constant(features), labels, default_penalty(len(rows)), tol=1e-7)
    weights = fit.weights[:-1] / columns.spread
    constant = (CONSTANT * fit.weights[-1] - columns.centre @ weights) / design.constant
    return np.asarray(design.mapping @ np.append(weights, constant), np.float64)


def fit_alone_and_pooled(design: Design, rows: Floats) -> tuple[Floats, Floats]:
    """Coefficients of encoded rows: of the label's holder alone, and of all columns pooled."""
    # The columns of other parties are set to zero.
    own = rows.copy()
    for piece in design.pieces:
        if piece.party != design.label_at and piece.kind != LABEL:
            own[:, piece.start : piece.stop] = 0.0
    return _fit(design, own), _fit(design, rows)


def compute_baselines(design: Design, train: Sequence[Records], test: Records) -> list[Baseline]:
    rows = pool_columns(design, train)
    if not len(rows):
        return []
    alone, whole = fit_alone_and_pooled(design, rows)
    assert test.labels is not None
    if design.classes:
        most = np.mean(rows[:, design.label.start] > 0) > 0.5
        constant, said = float(np.mean((test.labels > 0) != most)), "always the most frequent class"
    else:
        middle = rows[:, design.label.start].mean() / design.label.table[0, 0]
        constant = float(np.mean((scale_target(design.schema, test.labels) - middle) ** 2))
        said = "always the mean"
    return [
        Baseline("constant", constant, note=said),
        Baseline("own data", measure_error(design, alone, test), note="the label's holder alone"),
        Baseline("pooled", measure_error(design, whole, test), note="all columns in one place, no privacy"),
    ]


def add_noise(protocol: VerticalRegression, exact: Floats, consortium: Consortium, source: NoiseSource) -> Floats:
    """Add every party's part of the noise to exact weighted entries."""
    release = protocol.moments(consortium.loss)
    scale, noise = release.scale(consortium), release.noise
    assert noise is not None
    units = np.rint(exact / scale.grid).astype(np.int64)
    for _ in consortium.parties:
        units += noise.draw(source, scale, release.shape, permit=simulated_permit(release.name), part=True)
    return np.asarray(units * scale.grid, np.float64)


@dataclass(frozen=True, eq=False)
class CentralRounds:
    """Gradient rounds over all columns: each party's columns of z, and its whitening matrix."""

    rounds: Rounds
    columns: Mapping[str, Floats]
    whitening: Mapping[str, Floats]

    @cached_property
    def units(self) -> dict[str, Floats]:
        return {party: self.rounds.features(own, party) for party, own in self.columns.items()}

    @cached_property
    def instruments(self) -> dict[str, Floats]:
        """Instruments of each party, in units of 2^−PLACES."""
        return {party: self.rounds.instruments(own, party, self.whitening[party]) for party, own in self.units.items()}

    def sums(self, weights: Floats, intervals: Floats, curve: Response = WIDEST) -> Floats:
        """Σ u (s(z) − y + ½), the constant's last. A secure round has these but for rounding; with a dealer, on average
        over its masks."""
        rounds = self.rounds
        places = sum(
            rounds.scores(own, party, weights, interval, curve).astype(np.int64)
            for (party, own), interval in zip(self.units.items(), intervals)
        )
        holder = rounds.design.label_at
        label = rounds.design.label.start - rounds.design.places(holder).start
        found = curve.at(np.asarray(places)) - np.where(self.columns[holder][:, label] > 0, 0.5, -0.5)
        sums = [np.ldexp(own.T @ found, -PLACES) for own in self.instruments.values()]
        if rounds.design.intercept:
            sums.append(np.array([np.ldexp(constant_units(rounds.size), -PLACES) * found.sum()]))
        return np.concatenate(sums)

    def clipped_fractions(self, weights: Floats, intervals: Floats) -> dict[str, float]:
        """The share of rows whose instruments, or whose partial score, a party clips: the largest over parties."""
        rounds, shares = self.rounds, []
        for (party, own), (centre, half_width) in zip(self.units.items(), intervals):
            longer = Whitening(self.whitening[party]).norms(own) > rounds.limit(party)
            weight, constant = rounds.own_weights(party, weights)
            outside = np.abs(np.ldexp(own, -PLACES) @ weight + constant - centre) > half_width
            shares.append((float(longer.mean()), float(outside.mean())))
        instruments, scores = np.max(shares, axis=0)
        return {"instruments clipped": float(instruments), "scores clipped": float(scores)}


def run_rounds(
    protocol: GradientRegression, columns: Mapping[str, Floats], consortium: Consortium, source: NoiseSource
) -> tuple[Floats, dict[str, float]]:
    """Coefficients of encoded rows after all rounds, with every party's noise in each release; and the share of rows
    that the last round clipped."""
    rows = len(next(iter(columns.values())))
    exact = protocol.entries.exact(np.hstack(list(columns.values())))
    descent = protocol.start(add_noise(protocol, exact, protocol.moment_terms(consortium), source), rows, consortium)
    release = protocol.gradient(consortium.loss)
    scale, noise = release.scale(consortium), release.noise
    assert noise is not None
    held, cut = CentralRounds(protocol.secure_rounds, columns, descent.whitening), {}
    for number in range(release.times):
        intervals = descent.intervals
        exact = held.sums(descent.weights, intervals, CURVES[descent.curve])
        if number == release.times - 1:
            cut = held.clipped_fractions(descent.weights, intervals)
        units = np.rint(exact / scale.grid).astype(np.int64)
        for _ in consortium.parties:
            units += noise.draw(source, scale, release.shape, permit=simulated_permit(release.name, number), part=True)
        descent = descent.step(np.asarray(units * scale.grid, np.float64))
    return descent.coefficients, cut
