"""Which statistic to use: one rule from public quantities, so that choosing is no release."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from comity.entropy import Stream
from comity.errors import StudyError
from comity.federation.consortium import Consortium
from comity.learn.feature_map import FeatureMap, pca, random_features, scaling
from comity.privacy.accounting import gaussian_budget
from comity.privacy.loss import Pure
from comity.protocols.softlabel.statistics import Cells, ClassSums, Histograms, Models, Statistic, Votes

Floats = NDArray[np.float64]

NAMES = ("auto", "votes", "histograms", "class-sums", "cells", "models")
MAPS = ("none", "scaling", "pca", "random")

# The constants below were settled while looking at three public tables: HAR (1,000 parties of six records), MNIST and
# KDD-99, whose test rows were looked at before; those of votes on training rows of KDD-99. Others may want
# others.

# A party with this many records for each class trains a classifier that is worth asking.
_RECORDS_PER_CLASS = 10
# Votes are taken over as many directions as leave the noise this share of the signal, and over no fewer than five.
_VOTE_NOISE = 0.2
_FEWEST_DIRECTIONS = 5
_ROWS_PER_DIRECTION = 10
# Class sums are spread over as many directions as leave the noise this share of the signal in each.
_DIRECTION_NOISE = 0.2
# As many cells as leave the noise a fifth of a party's typical entry.
_CELL_NOISE = 5.0


@dataclass(frozen=True)
class Choice:
    """A statistic, and why it was taken."""

    statistic: Statistic
    why: str


def choose(
    who: Consortium,
    auxiliary: Floats,
    *,
    classes: int,
    records_per_party: int | None = None,
    statistic: str = "auto",
    feature_map: str = "none",
    dimensions: int | None = None,
) -> Choice:
    """The statistic for a study, of public quantities alone: `records_per_party` is declared, never counted.

    Votes need local classifiers, so many records per party; they are also what pure ε is best spent on, because their
    sensitivity does not grow with the dimension. Parties with few records send sums over public directions, as many of
    them as the noise allows, or where it allows hardly any, counts over public clusters.
    """
    if statistic not in NAMES:
        raise StudyError(
            f"softlabel.statistic must be one of {', '.join(NAMES)}, found {statistic!r}", key="softlabel.statistic"
        )
    first = first_map(feature_map, auxiliary, dimensions)
    enough = _RECORDS_PER_CLASS * classes
    pure = isinstance(who.loss, Pure)
    if statistic != "auto":
        why = "asked for"
    elif pure:
        statistic, why = "votes", "pure epsilon: their sensitivity does not grow with the dimension"
    elif (records := _declared(records_per_party)) >= enough:
        statistic, why = "votes", f"{records} records per party, {enough} or more: local classifiers are good"
    else:
        directions = class_sum_directions(who, records)
        few = f"{records} records per party, fewer than {enough}"
        if directions >= 2 * classes:
            statistic, why = "class-sums", f"{few}, and the noise allows {directions:.0f} directions"
        else:
            statistic, why = "cells", f"{few}, and the noise allows {directions:.1f} directions, too few for sums"
    if first is not None and statistic not in ("votes", "histograms"):
        raise StudyError(
            f'softlabel.feature_map = "{feature_map}" is for votes and histograms: {statistic} ({why}) has a map of '
            "its own, fitted on the auxiliary records too; leave feature_map out",
            key="softlabel.feature_map",
        )
    return Choice(_built(who, auxiliary, classes, records_per_party, statistic, first), f"{statistic}: {why}")


def first_map(name: str, auxiliary: Floats, dimensions: int | None) -> FeatureMap | None:
    """The map that a study names, fitted on the public auxiliary rows: none that was fitted elsewhere can get in."""
    if not isinstance(name, str) or name not in MAPS:
        raise StudyError(
            f"softlabel.feature_map must be one of {', '.join(MAPS)}, which are fitted on the public auxiliary records "
            f"here, found {name!r}. A map fitted on private records would be a release that nothing pays for",
            key="softlabel.feature_map",
        )
    if dimensions is not None and (dimensions < 1 or name in ("none", "scaling")):
        raise StudyError(
            f"softlabel.dimensions must be 1 or more, with feature_map pca or random, found {dimensions} with {name}",
            key="softlabel.dimensions",
        )
    if name == "pca":
        return pca(auxiliary, min(auxiliary.shape[1], dimensions or 50))
    if name == "random":
        return random_features(auxiliary, dimensions or 2 * auxiliary.shape[1], Stream.public("softlabel features"))
    return scaling(auxiliary) if name == "scaling" else None


def _declared(records_per_party: int | None) -> int:
    if records_per_party is None:
        raise StudyError(
            "softlabel.records_per_party is missing: the statistic is chosen by it, and nobody counts private records. "
            "Declare how many records a party has (1 if parties may hold a single class only), or set "
            'statistic = "votes"',
            key="softlabel.records_per_party",
        )
    if records_per_party < 1:
        raise StudyError(
            f"softlabel.records_per_party must be 1 or more, found {records_per_party}",
            key="softlabel.records_per_party",
        )
    return records_per_party


def noise_multiplier(who: Consortium) -> float:
    """Standard deviation of the noise on a sum of sensitivity one, every party having added its part.

    For pure ε it is that of one coordinate alone; spherical noise grows with their number.
    """
    if isinstance(who.loss, Pure):
        unit = sqrt(2) / float(who.loss.epsilon)
    else:
        unit = 1 / sqrt(float(gaussian_budget(who.loss).square))
    return unit * sqrt(who.size / who.honest_parts)


def vote_directions(who: Consortium, classes: int, rows: int) -> int:
    """As many directions as keep the noise on all moments together at a fifth of the largest signal, but five at least.

    Gaussian noise in k numbers is √k deviations long, spherical noise of pure ε k times its scale. A covariance needs
    ten public rows for each direction, whatever the noise.
    """
    signal = sqrt(1 - 1 / classes) / sqrt(2)
    if isinstance(who.loss, Pure):
        scale = sqrt(who.size / who.honest_parts) / float(who.loss.epsilon)
        numbers = _VOTE_NOISE * signal * who.survivors / scale
    else:
        numbers = (_VOTE_NOISE * signal * who.survivors / noise_multiplier(who)) ** 2
    return max(_FEWEST_DIRECTIONS, min(int(numbers / (classes - 1)), rows // _ROWS_PER_DIRECTION))


def class_sum_directions(who: Consortium, records_per_party: int) -> float:
    return _DIRECTION_NOISE * who.survivors * sqrt(records_per_party) / (2 * noise_multiplier(who))


def cell_count(who: Consortium, records_per_party: int, classes: int, rows: int) -> int:
    wanted = round(who.survivors * sqrt(records_per_party) / (_CELL_NOISE * sqrt(2) * noise_multiplier(who)))
    return min(max(classes, wanted), max(1, rows // _ROWS_PER_DIRECTION))


def _built(
    who: Consortium,
    auxiliary: Floats,
    classes: int,
    records_per_party: int | None,
    statistic: str,
    first: FeatureMap | None,
) -> Statistic:
    if statistic in ("class-sums", "cells"):
        records = _declared(records_per_party)
        if statistic == "cells":
            return Cells.on(auxiliary, classes, cells=cell_count(who, records, classes, len(auxiliary)))
        most = max(classes, int(class_sum_directions(who, records)))
        return ClassSums.on(auxiliary, classes, records_per_party=records, dimensions=most)
    if statistic == "histograms":
        return Histograms.on(auxiliary, classes, vote_directions(who, classes, len(auxiliary)), first)
    if statistic == "models":
        return Models.on(auxiliary, classes)
    return Votes.on(auxiliary, classes, vote_directions(who, classes, len(auxiliary)), first)
