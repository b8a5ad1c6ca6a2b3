"""How good a result is, in words: for the page, the card, the terminal and `result.json` alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.learn import LinearRegressor

if TYPE_CHECKING:
    from comity.report.result import Result


def measure(result: Result) -> str:
    """What the error counts."""
    if isinstance(result.model, LinearRegressor):
        return "mean squared error, the target's bounds being -1 and 1"
    return "share of test records that is predicted wrongly"


def verdict(result: Result) -> str:
    """How the error compares, in one sentence that also says so when the result is of no use."""
    if result.error is None:
        return ""
    error, known = result.error, {baseline.name: baseline.error for baseline in result.baselines}
    constant, alone, pooled = known.get("constant"), known.get("own data"), known.get("pooled")
    if constant is not None and error >= constant:
        answer = "same" if isinstance(result.model, LinearRegressor) else "most frequent"
        return f"No better than a constant, always the {answer} answer ({constant:.3f}): of no use as it stands."
    said = []
    if alone is not None:
        said.append(f"{'better' if error < alone else 'not better'} than a party alone ({alone:.3f})")
    if pooled is not None:
        gap = error - pooled
        said.append(
            f"{gap:.3f} above all records pooled ({pooled:.3f})" if gap > 0 else f"level with pooling ({pooled:.3f})"
        )
    text = ", ".join(said)
    return text[:1].upper() + text[1:] + "." if text else ""


def not_covered(result: Result) -> str | None:
    """Of figures that stand beside a guarantee which does not hold for them; None where nothing was measured."""
    if result.error is None:
        return None
    measured = "The error and the baselines were" if result.baselines else "The error was"
    return (
        f"{measured} measured on the private records of a simulation, outside the guarantee: in a deployment each such "
        "figure would be a release of its own, noised and paid for, or stay with its owner."
    )
