"""Sentences about a result, the same for the page, the card, the terminal and `result.json`.

Quality    How good the result is, and which figures the guarantee does not cover.
Epsilon    What the guarantee means for a person. Someone holds two neighbouring datasets for equally likely. After an
           (ε, δ)-private release the better guess is right with probability (1 + TV)/2, and
           TV ≤ (e^ε − 1 + 2δ)/(e^ε + 1): at most (e^ε + δ)/(1 + e^ε). Without δ this bounds the belief itself, whatever
           was released.
"""

from __future__ import annotations

import math
from decimal import ROUND_UP, Context, Decimal
from typing import TYPE_CHECKING

from comity.federation.evaluation.assessment import little_to_gain
from comity.privacy.loss import format_small
from comity.study.results.result import Guarantee

if TYPE_CHECKING:
    from comity.federation.evaluation.assessment import Baseline
    from comity.study.results.result import Result

_REPLACED = {
    "a record": ("every other record", "of yours"),
    "a person": ("everybody else's records", "of all your records"),
    "a whole party": ("every other party's records", "of all your party's records"),
}
_ADDED = {"a record": "your record took part", "a person": "you took part", "a whole party": "your party took part"}
# With more decimals a reader takes the figure for certain.
_MAX_DECIMALS = 6


def describe_quality(result: Result) -> str:
    """How the error compares with its baselines, in one sentence; it says so where the result is of no use."""
    if result.error is None:
        return ""
    error, known = result.error, {baseline.name: baseline for baseline in result.baselines}
    constant, alone, pooled = (known.get(name) for name in ("constant", "own data", "pooled"))
    if constant is not None and error >= constant.error:
        said = f", {constant.note}" if constant.note else ""
        return f"No better than a constant{said} ({constant.error:.3f}): of no use as it stands."
    if constant is not None and not result.assessment.can_tell(constant.error):
        tested = f"{result.assessment.tested:,} test records are too few"
        return f"Too few records to tell: {tested} to tell this error from that of a constant ({constant.error:.3f})."
    parts = []
    if alone is not None:
        several = alone.best is not None and alone.best < alone.error
        mean = f"{alone.error:.3f} on average" if several else f"{alone.error:.3f}"
        parts.append(f"{_compare(result, alone.error)} a party alone ({mean})")
        if several and alone.best is not None:
            parts.append(f"{_compare(result, alone.best)} the best party alone ({alone.best:.3f})")
    if pooled is not None:
        gap = error - pooled.error
        level = f"level with pooling ({pooled.error:.3f})"
        parts.append(f"{gap:.3f} above all records pooled ({pooled.error:.3f})" if gap > 0 else level)
    text = ", ".join(parts)
    return text[:1].upper() + text[1:] + "." + _describe_joining(result, alone, constant, pooled) if text else ""


def left_exceeds_difference(result: Result) -> bool:
    """Whether more is left than what was granted less what was spent, because losses add as squares. Nothing is left of
    a budget that is spent."""
    some = any(account.left.startswith("eps") and account.left != "eps 0.00" for account in result.accounts)
    return some and result.guarantee.loss.startswith(("mu", "rho"))


def _compare(result: Result, other: float) -> str:
    """How the result's error compares with another on the same test records."""
    assert result.error is not None
    if not result.assessment.can_tell(other):
        return "level with"
    return "better than" if result.error < other else "not better than"


def _describe_joining(
    result: Result, alone: Baseline | None, constant: Baseline | None, pooled: Baseline | None
) -> str:
    """A sentence where a party's own records would do as well as the result, by `little_to_gain`."""
    assert result.error is not None
    if alone is None or constant is None or pooled is None:
        return ""
    attainable = constant.error - pooled.error
    if little_to_gain(alone.error, result.error, attainable):
        return " A party's own records would do as well: for the model alone, joining does not pay."
    if alone.best is not None and little_to_gain(alone.best, result.error, attainable):
        return " The best party's own records would do as well: for the model alone, joining does not pay for it."
    return ""


def format_baseline(baseline: Baseline) -> str:
    """A baseline's error, and its log loss and AUC where it has them."""
    beside = (("log loss", baseline.log_loss), ("AUC", baseline.auc))
    return f"{baseline.name}: {baseline.error:.3f}" + "".join(
        f", {name} {value:.3f}" for name, value in beside if value is not None
    )


def describe_evaluation(result: Result) -> tuple[str, ...]:
    """A heading, and a line for each figure that was measured under privacy; empty where nothing was."""
    found = result.evaluation
    if found is None:
        return ()
    heading = f"measured under privacy on records set aside ({max(0, round(found.records))} {found.of}), 95 % intervals"
    return (heading, *(f"{name} {figure}" for name, figure in found.figures.items()))


def best_guess_probability(epsilon: float, delta: float) -> float:
    """How often the best guess between two equally likely datasets is right."""
    if epsilon > 700:
        return 1.0
    return min(1.0, (math.exp(epsilon) + delta) / (1 + math.exp(epsilon)))


def explain_guarantee(guarantee: Guarantee) -> str:
    """How far anybody's belief can move, in two sentences; empty where the claimed loss does not hold."""
    if guarantee.claim != "private":
        return ""
    others, yours = _REPLACED[guarantee.unit]
    unsure = f"two versions {yours}" if guarantee.neighbours == "replaced" else f"whether {_ADDED[guarantee.unit]}"
    between = "between " if guarantee.neighbours == "replaced" else ""
    before = f"Suppose someone knows {others} and is unsure {between}{unsure}: a coin toss, 50 %."
    sure = format_percent(best_guess_probability(guarantee.epsilon, guarantee.delta))
    if sure is None:
        after = "After this run they may be certain: so large an epsilon promises nothing."
    else:
        after = (
            f"After seeing everything this run published, their best guess is right at most {sure} of the time"
            f"{_counted(guarantee.delta)}."
        )
    return f"{'Without the seed it would mean: ' if guarantee.seeded else ''}{before} {after}"


def _counted(delta: float) -> str:
    return f" (delta {format_small(Decimal(repr(delta)))} is counted in)" if delta else ""


def format_percent(share: float) -> str | None:
    """A percentage, rounded up to the first decimal that keeps it below 100; None where none does."""
    for decimals in range(1, _MAX_DECIMALS + 1):
        # Rounded up a little first: the double may lie below the number that it stands for.
        exact = Decimal(share) * 100 * (1 + Decimal("1e-15"))
        up = exact.quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_UP, context=Context(prec=40))
        if up < 100:
            return f"{up} %"
    return None
