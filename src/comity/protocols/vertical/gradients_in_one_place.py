"""The gradient rounds with all columns in one place: for comparisons at a size where hosts would take hours.

The secure run opens the very integers that are computed here plus one part of the noise per party; a test compares the
two number by number.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from comity.federation.consortium import Consortium
from comity.privacy.permit import Permit
from comity.privacy.randomness import NoiseSource
from comity.protocols.vertical.columns import PLACES
from comity.protocols.vertical.gradients import GradientRegression
from comity.protocols.vertical.in_one_place import noised
from comity.protocols.vertical.response import limits, partial_scores, responses
from comity.protocols.vertical.rounds import Rounds

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def exact_sums(rounds: Rounds, columns: Mapping[str, Floats], weights: Floats) -> Integers:
    """Σ x s(z) in units of the release, the constant's last, from each party's columns of z."""
    limit, scores = limits(rounds.layout, rounds.places), np.zeros(1, np.int64)
    features = {party: rounds.features(own, party) for party, own in columns.items()}
    for party, own in features.items():
        mine, constant = rounds.own_weights(party, weights)
        scores = scores + partial_scores(own, mine, constant, limit[party], rounds.places)
    found = responses(scores, rounds.places)
    sums = [np.rint(np.ldexp(own, PLACES)).astype(np.int64).T @ found for own in features.values()]
    constant_units = round(rounds.layout.constant * 2**PLACES)
    return np.concatenate([*sums, [constant_units * found.sum()]])


def descended(
    protocol: GradientRegression, columns: Mapping[str, Floats], who: Consortium, source: NoiseSource
) -> Floats:
    """Coefficients of encoded rows after all rounds, with every party's part of the noise in each release."""
    rows = len(next(iter(columns.values())))
    exact = protocol.dissection.exact(np.hstack(list(columns.values())))
    descent = protocol.start(noised(protocol, exact, protocol.for_moments(who), source), rows, who)
    release = protocol.gradient(who.loss)
    scale, noise = release.scale(who), release.noise
    assert noise is not None
    for number in range(release.times):
        units = exact_sums(protocol.descent, columns, descent.weights)
        for _ in who.parties:
            units += noise.draw(source, scale, release.shape, permit=Permit(release.name, number), part=True)
        descent = descent.step(np.asarray(units * scale.grid, np.float64))
    return protocol.coefficients(descent)
