"""Which solver `auto` stands for: one rule, for the keys of a study and for the protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from comity.methods.averaging.moment_blocks import WIDEST_WHOLE
from comity.methods.averaging.objectives import Kind

Way = Literal["gradient", "average", "moments"]


def auto_solver(*, model: Kind, features: int, pure: bool, asked: bool, moments_win: Callable[[], bool]) -> Way:
    """The solver by public figures. `asked` says that a penalty, rounds or a clip is set, which moments do not have.

    Moments of a linear model hold all of it. Otherwise gradients, which need a delta. Without one a logistic model is
    made from moments where their noise allows it, which `moments_win` tells, and else from the average of local fits.
    """
    moments_fit = features <= WIDEST_WHOLE and not asked
    if model == "linear" and moments_fit:
        return "moments"
    if not pure:
        return "gradient"
    return "moments" if model == "logistic" and moments_fit and moments_win() else "average"
