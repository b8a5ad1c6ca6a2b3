"""What Pathak, Rane and Raj (2010) fix, with the place where it is printed.

`noise = "spherical"` is the repair of Theorem 4.1; every other repair is the default variant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from annotated_types import Interval

from comity.methods.constants import Constant

MaxRecords = Annotated[int, Interval(ge=1, le=1 << 40)]

PAPER: Final[Mapping[str, Constant]] = {
    "noise": Constant(
        "literal",
        "section 3.2",
        "independent Laplace coordinates, whose scale is the bound on the L2 norm of a change",
    ),
    "l2": Constant(1.0, "section 5", "the regularisation parameter of all experiments"),
    "intercept": Constant(False, "sections 3.3 and 5", "classes come from w·x alone; 123 features have no constant"),
    "scaling": Constant(
        "scaled", "Theorem 4.3 takes rows in the unit ball; how they get there is not printed", "rows in the unit ball"
    ),
    "objective": Constant(
        "mean of log(1 + exp(-y w·x)) + l2 |w|^2 / 2",
        "section 3.1; the display is missing in the text, and 2/(n l2) of section 4.1 is the bound for this objective",
        "what each party minimises",
    ),
    "noise_scale": Constant("2 / (n_(1) epsilon l2)", "section 3.2", "of each coordinate of the noise on the mean"),
    "parties": Constant(5, "section 5", "parties of Figure 2"),
    "executions": Constant(200, "section 5", "runs that each figure is the mean of"),
}
