"""The gradient rounds with all columns in one place: for comparisons at a size where hosts would take hours.

The secure run opens what is computed here, to the rounding of the dealt waves, plus one part of the noise per party; a
test compares the two number by number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from comity.federation.declare.consortium import Consortium
from comity.methods.vertical.gradients import GradientRegression
from comity.methods.vertical.in_one_place import noised
from comity.methods.vertical.instruments import Whitening, constant_units
from comity.methods.vertical.layout import PLACES
from comity.methods.vertical.response import responses
from comity.methods.vertical.rounds import Rounds
from comity.privacy.permit import simulated
from comity.privacy.randomness import NoiseSource

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class InOnePlace:
    """Each party's columns of z, and how it whitens them: what stays the same from round to round."""

    rounds: Rounds
    columns: Mapping[str, Floats]
    whitening: Mapping[str, Floats]

    @cached_property
    def units(self) -> dict[str, Floats]:
        return {party: self.rounds.features(own, party) for party, own in self.columns.items()}

    @cached_property
    def instruments(self) -> dict[str, Floats]:
        """Of each party, in units of 2^−PLACES."""
        return {party: self.rounds.instruments(own, party, self.whitening[party]) for party, own in self.units.items()}

    def sums(self, weights: Floats, intervals: Floats) -> Floats:
        """Σ u (s(z) − y + ½), the constant's last; a secure round has every response within `CURVE.rounding` of this
        one's."""
        rounds = self.rounds
        places = sum(
            rounds.scores(own, party, weights, interval).astype(np.int64)
            for (party, own), interval in zip(self.units.items(), intervals)
        )
        holder = rounds.layout.label_at
        label = rounds.layout.label.start - rounds.layout.places(holder).start
        found = responses(np.asarray(places)) - np.where(self.columns[holder][:, label] > 0, 0.5, -0.5)
        sums = [np.ldexp(own.T @ found, -PLACES) for own in self.instruments.values()]
        if rounds.layout.intercept:
            sums.append(np.array([np.ldexp(constant_units(rounds.size), -PLACES) * found.sum()]))
        return np.concatenate(sums)

    def cut(self, weights: Floats, intervals: Floats) -> dict[str, float]:
        """The share of rows of which a party cuts the instruments, or its part of the score: the largest of all
        parties. From exact rows, so that it is for simulations alone."""
        rounds, shares = self.rounds, []
        for (party, own), (centre, half_width) in zip(self.units.items(), intervals):
            longer = Whitening(self.whitening[party]).norms(own) > rounds.limit(party)
            weight, constant = rounds.own_weights(party, weights)
            outside = np.abs(np.ldexp(own, -PLACES) @ weight + constant - centre) > half_width
            shares.append((float(longer.mean()), float(outside.mean())))
        instruments, scores = np.max(shares, axis=0)
        return {"instruments cut": float(instruments), "scores cut": float(scores)}


def descended(
    protocol: GradientRegression, columns: Mapping[str, Floats], who: Consortium, source: NoiseSource
) -> tuple[Floats, dict[str, float]]:
    """Coefficients of encoded rows after all rounds, with every party's part of the noise in each release; and what
    share of the rows was cut in the last."""
    rows = len(next(iter(columns.values())))
    exact = protocol.quadratic.dissection.exact(np.hstack(list(columns.values())))
    descent = protocol.start(noised(protocol.quadratic, exact, protocol.for_moments(who), source), rows, who)
    release = protocol.gradient(who.loss)
    scale, noise = release.scale(who), release.noise
    assert noise is not None
    held, cut = InOnePlace(protocol.descent, columns, protocol.whitening(descent)), {}
    for number in range(release.times):
        intervals = protocol.intervals(descent)
        exact = held.sums(descent.weights, intervals)
        if number == release.times - 1:
            cut = held.cut(descent.weights, intervals)
        units = np.rint(exact / scale.grid).astype(np.int64)
        for _ in who.parties:
            units += noise.draw(source, scale, release.shape, permit=simulated(release.name, number), part=True)
        descent = descent.step(protocol.rescaled(np.asarray(units * scale.grid, np.float64)))
    return protocol.coefficients(descent), cut
