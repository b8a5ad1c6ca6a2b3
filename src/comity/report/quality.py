"""How good a result is, in words: for the page, the card, the terminal and `result.json` alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from comity.federation.evaluation.assessment import Baseline
    from comity.report.result import Result


def verdict(result: Result) -> str:
    """How the error compares, in one sentence that also says so when the result is of no use."""
    if result.error is None:
        return ""
    error, known = result.error, {baseline.name: baseline for baseline in result.baselines}
    constant, alone, pooled = (known.get(name) for name in ("constant", "own data", "pooled"))
    if constant is not None and error >= constant.error:
        said = f", {constant.note}" if constant.note else ""
        return f"No better than a constant{said} ({constant.error:.3f}): of no use as it stands."
    parts = []
    if alone is not None:
        parts.append(f"{'better' if error < alone.error else 'not better'} than a party alone ({alone.error:.3f})")
    if pooled is not None:
        gap = error - pooled.error
        level = f"level with pooling ({pooled.error:.3f})"
        parts.append(f"{gap:.3f} above all records pooled ({pooled.error:.3f})" if gap > 0 else level)
    text = ", ".join(parts)
    return text[:1].upper() + text[1:] + "." if text else ""


def figures_of(baseline: Baseline) -> str:
    """A baseline's error, and its log loss and AUC where it has them."""
    beside = (("log loss", baseline.log_loss), ("AUC", baseline.auc))
    return f"{baseline.name}: {baseline.error:.3f}" + "".join(
        f", {name} {value:.3f}" for name, value in beside if value is not None
    )


def measured_privately(result: Result) -> tuple[str, ...]:
    """What the evaluation found, a line for each figure, under a heading that keeps it apart from exact figures."""
    found = result.evaluation
    if found is None:
        return ()
    heading = f"measured under privacy on records set aside ({max(0, round(found.records))} {found.of}), 95 % intervals"
    return (heading, *(f"{name} {figure}" for name, figure in found.figures.items()))


def not_covered(result: Result) -> str | None:
    """A word on figures that the guarantee beside them does not cover; None where nothing was measured."""
    if not result.assessment.measured:
        return None
    if result.error is None:
        measured = "The figures of quality were"
    else:
        measured = "The error and the baselines were" if result.baselines else "The error was"
    return (
        f"{measured} measured on the private records of a simulation, outside the guarantee: in a deployment each such "
        "figure would be a release of its own, noised and paid for, or stay with its owner."
    )
