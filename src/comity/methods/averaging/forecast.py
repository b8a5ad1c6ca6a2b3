"""What a plan says of a study's accuracy before anything runs: from public figures alone."""

from __future__ import annotations

from math import prod, sqrt
from typing import TYPE_CHECKING

from comity.federation.declare.consortium import Consortium
from comity.methods.averaging import descent, rule
from comity.methods.averaging.sizes import together

if TYPE_CHECKING:
    from comity.methods.averaging.protocol import Averaging


def warnings(built: Averaging, who: Consortium) -> tuple[str, ...]:
    """That the steps of a descent can't converge, where they can't."""
    if built.way(who) != "gradient":
        return ()
    records = together(built.sizes, who)
    reached = rule.reached(
        curvature=built.objective.curvature(built.cut(who)),
        noise=descent.gradient_noise(built, who),
        records=records,
        features=built.features,
        rounds=built.steps,
        touched=built.touched,
    )
    if reached >= rule.FAR_ENOUGH:
        return ()
    return (
        f"the steps can't converge: {built.steps} rounds go at most {reached:.0%} of the way in an average one of "
        f"{built.features} directions, at this epsilon and {records:,} records; raise privacy.epsilon, bring more "
        "records, or declare fewer features",
    )


def expectation(built: Averaging, who: Consortium) -> str:
    """How much noise to expect, and that it drowns everything where it does."""
    way, declared, records = built.way(who), built.declare(who), together(built.sizes, who)
    if way == "moments":
        noise = declared["moments"].opened_deviation(who)
        useless = ", so expect a useless model: raise epsilon or bring more records"
        return (
            f"each released sum of products carries noise of deviation {noise:.3g}, where a record counts at most 1 of "
            f"{records:,}{useless if noise * sqrt(built.features) > records else ''}"
        )
    release = declared["gradient" if way == "gradient" else "models"]
    noise = release.opened_deviation(who) * sqrt(prod(built.shape)) / records
    if way == "gradient":
        cut = built.cut(who)
        useless = ", so expect a useless model: raise epsilon or bring more records" if noise > cut else ""
        return (
            f"the mean gradient of a round carries noise of norm {noise:.3g}, a record's gradient is at most "
            f"{cut:.3g}; {built.steps} rounds are averaged{useless}{_calibration(built, who)}"
        )
    radius = built.objective.radius(built.penalty(who))
    useless = ", so expect a useless model: raise epsilon, l2 or the number of records" if noise > radius else ""
    return (
        f"the model carries noise of norm {noise:.3g}; no fit with l2 = {built.penalty(who):.3g} is longer than "
        f"{radius:.3g}{useless}"
    )


def _calibration(built: Averaging, who: Consortium) -> str:
    if not built.asks:
        return ""
    noise = built.declare(who)["calibration"].opened_deviation(who)
    return (
        f"; {built.asks} more sums of two numbers say how sure the model is, with noise of deviation {noise:.3g} "
        "where a record counts at most 1"
    )
