"""The gradient rounds with all columns in one place: for comparisons at a size where hosts would take hours.

The secure run opens what is computed here, to the rounding of the dealt waves, plus one part of the noise per party; a
test compares the two number by number.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from comity.federation.declaring.consortium import Consortium
from comity.privacy.permit import simulated
from comity.privacy.randomness import NoiseSource
from comity.protocols.vertical.gradients import GradientRegression
from comity.protocols.vertical.in_one_place import noised
from comity.protocols.vertical.instruments import constant_units
from comity.protocols.vertical.layout import PLACES
from comity.protocols.vertical.response import responses
from comity.protocols.vertical.rounds import Rounds

Floats = NDArray[np.float64]


def exact_sums(
    rounds: Rounds, columns: Mapping[str, Floats], weights: Floats, intervals: Floats, whitening: Mapping[str, Floats]
) -> Floats:
    """Σ u (s(z) − y + ½), the constant's last, from each party's columns of z; a secure round has every response
    within `CURVE.rounding` of this one's."""
    units = {party: rounds.features(own, party) for party, own in columns.items()}
    places = sum(
        rounds.scores(own, party, weights, interval).astype(np.int64)
        for (party, own), interval in zip(units.items(), intervals)
    )
    holder = rounds.layout.label_at
    label = rounds.layout.label.start - rounds.layout.places(holder).start
    found = responses(np.asarray(places)) - np.where(columns[holder][:, label] > 0, 0.5, -0.5)
    sums = [
        np.ldexp(rounds.instruments(own, party, whitening[party]).T @ found, -PLACES) for party, own in units.items()
    ]
    if rounds.layout.intercept:
        sums.append(np.array([np.ldexp(constant_units(rounds.size), -PLACES) * found.sum()]))
    return np.concatenate(sums)


def descended(
    protocol: GradientRegression, columns: Mapping[str, Floats], who: Consortium, source: NoiseSource
) -> Floats:
    """Coefficients of encoded rows after all rounds, with every party's part of the noise in each release."""
    rows = len(next(iter(columns.values())))
    exact = protocol.quadratic.dissection.exact(np.hstack(list(columns.values())))
    descent = protocol.start(noised(protocol.quadratic, exact, protocol.for_moments(who), source), rows, who)
    release = protocol.gradient(who.loss)
    scale, noise = release.scale(who), release.noise
    assert noise is not None
    whitening = protocol.whitening(descent)
    for number in range(release.times):
        exact = exact_sums(protocol.descent, columns, descent.weights, protocol.intervals(descent), whitening)
        units = np.rint(exact / scale.grid).astype(np.int64)
        for _ in who.parties:
            units += noise.draw(source, scale, release.shape, permit=simulated(release.name, number), part=True)
        descent = descent.step(protocol.rescaled(np.asarray(units * scale.grid, np.float64)))
    return protocol.coefficients(descent)
