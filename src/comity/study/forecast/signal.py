"""Roughly what noise leaves of what the records could say, from public figures, without a simulation.

A release is a sum of contributions of n units, each of norm at most B. The sum is therefore no longer than n·B, and the
noise in it has a norm of about deviation·sqrt(entries), which is divided by sqrt(times) where rounds are averaged. If
the noise of every release of the parties is longer than a small part of the longest sum that there could be, no method
can tell the records from noise. Real sums are much shorter than the longest one, so silence promises nothing: it takes
a forecast (`forecast`).

Where a whole party is the unit, its contribution may be a few labels in full. They can be read one by one, however long
the noise in all of them together is. There the noise in a single number is compared with the longest sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod, sqrt
from typing import TYPE_CHECKING

from comity.federation.declare.protection import Noised, Summed
from comity.privacy.unit import Neighbours, Unit
from comity.study.forecast import has_forecast

if TYPE_CHECKING:
    from comity.federation.declare.release import Release
    from comity.study.study import Study

LARGEST_RATIO = 0.5
"""From this ratio on a plan says that nothing will be learned. Chosen on generated visits (the starters of averaging,
synthetic data and soft labels at eight epsilons, three seeds each): the mean error of every study from 0.42 on was no
better than a constant's, and at 0.31 that of averaging was better. On training rows of Adult and credit defaults (all
three methods) and of KDD-99 (averaging) it was then only checked: no study from 0.5 on had a better mean error than a
constant."""

LITTLE_NOISE: Mapping[str, float] = {"averaging": 0.015, "softlabel": 0.02, "synthetic": 0.05, "vertical": 0.003}
"""Up to this ratio a plan says that most of the gain is left, by method. Chosen on training rows of Adult, credit
defaults, states of marriage and rentals of bicycles (`experiments.accuracy.training_rows`), 58 studies of 1,000 to
8,000 records at epsilon 0.03 to 10: below the smallest ratio at which a study kept less than three quarters of it
(0.016, 0.042, 0.060 and 0.0065). No table was left out."""
KEPT = "three quarters"


def noise_ratio(study: Study, units: int | None = None) -> float | None:
    """The noise of the parties' most telling release, over the longest sum that its units could have. None where the
    study declares no number of units, or releases no noisy sum. `units` are those of `count_units` by default."""
    units = count_units(study) if units is None else units
    # Published variants are for comparisons, and some of their releases have noise that the coordinator adds.
    if not units or getattr(study.method, "variant", "default") != "default":
        return None
    found = [
        _ratio(release, study, units)
        for release in study.agreement.accepted.releases
        if isinstance(release.protection, Summed | Noised) and release.bound is not None
    ]
    return min(found, default=None)


def count_units(study: Study) -> int | None:
    """How many units the study declares, or allows at most. Where columns are divided, it is the most that it allows,
    even if rows are declared: wide moments are longer than their noise in a few directions only, and with these
    studies of 562 columns learned at a ratio of 1.25."""
    declared = study.protocol.declared_units(study.consortium)
    if declared is not None or study.privacy.unit is Unit.PARTY:
        return declared
    most = getattr(study.method, "max_rows", None)
    return most if isinstance(most, int) else None


def count_declared(study: Study) -> int | None:
    """How many units the study declares. Where columns are divided, all parties hold the same rows."""
    rows = getattr(study.protocol, "declared_rows", None)
    return rows if isinstance(rows, int) else study.protocol.declared_units(study.consortium)


def _ratio(release: Release, study: Study, units: int) -> float:
    both = study.privacy.neighbours is Neighbours.REPLACE
    longest = units * release.sensitivity / (2 if both else 1)
    numbers = 1 if study.privacy.unit is Unit.PARTY else prod(release.shape)
    noise = release.opened_deviation(study.consortium) * sqrt(numbers)
    return noise / sqrt(release.times) / longest


def describe_signal(study: Study) -> tuple[str, ...]:
    """A sentence where the study would learn nothing, whatever its records are."""
    ratio = noise_ratio(study)
    if ratio is None or ratio < LARGEST_RATIO:
        return ()
    units = "parties" if study.privacy.unit is Unit.PARTY else "records"
    return (
        f"this study would learn nothing: the noise is {ratio:.1f} times the most that {count_units(study):,} {units} "
        "could add up to. Raise privacy.epsilon, add records, or use fewer columns",
    )


def describe_expectation(study: Study) -> tuple[str, ...]:
    """What a plan says of the result where nobody asked for a forecast: what part of the gain over a constant noise is
    likely to leave. How large this gain is depends on the records, so there is no error in it."""
    if nothing := describe_signal(study):
        return nothing
    units = count_declared(study)
    ratio = noise_ratio(study, units)
    if ratio is None or not has_forecast(study):
        return ()
    # The ratio was compared with results under Gaussian noise, and for declared units.
    if units is not None and float(study.privacy.delta) > 0 and ratio <= LITTLE_NOISE[study.protocol_name]:
        said = f"the noise costs little: roughly {KEPT} or more is left of"
    else:
        said = "the noise may cost little, or nearly all of"
    gain = "what all records together would gain over a constant without privacy"
    return (f"{said} {gain}. To know the error, forecast it from public records",)
