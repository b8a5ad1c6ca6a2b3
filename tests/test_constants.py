"""A tuned constant says beside itself on which data, so that nobody takes its figures on them for a holdout."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import comity

ROOT = Path(comity.__file__).parent
SAID = re.compile(r"Adult|credit defaults|HAR|MNIST|KDD-99|[Nn]ot tuned\s+(# )?on data|not on record|limit\s+of size")

# Those that were chosen to make models better; sizes of words, tolerances and limits of proofs are not among them.
TUNED = {
    "protocols/averaging/rule.py": (
        "ROUNDS",
        "FOR_SECOND_MOMENT",
        "FOR_CALIBRATION",
        "FAR_ENOUGH",
        "_LOUD",
        "_LEAST_CLIP",
        "_NARROW",
        "_RIDGE",
        "_PENALTY",
    ),
    "protocols/averaging/calibration.py": ("ASKS", "SPREAD", "_FURTHEST"),
    "protocols/averaging/moment_blocks.py": ("WIDEST_WHOLE", "SQUARE"),
    "protocols/averaging/whitening.py": ("LOOKS", "MOST_OF_ALL"),
    "protocols/averaging/objectives.py": ("clip=0.5",),
    "protocols/averaging/sizes.py": ("HEADROOM",),
    "protocols/declared_records.py": ("FAR",),
    "protocols/softlabel/rule.py": (
        "_VOTE_NOISE",
        "_SUM_NOISE",
        "_MOSTLY_NOISE",
        "_DIRECTIONS_PER_CLASS",
        "_CELL_NOISE",
        "_CELL_RECORDS",
        "_COUNTED",
        "_NOISY_CELLS",
    ),
    "protocols/softlabel/statistics/votes.py": ("_LEAST_L2", "_L2_PER_DEVIATION", "_ENOUGH_ROWS", "_REPEATS"),
    "protocols/softlabel/statistics/cells.py": ("_DECIDED", "_PLACED", "_AGREED", "_DIFFER"),
    "protocols/softlabel/statistics/class_sums.py": (
        "TOLD",
        "_NOISY",
        "_ROUNDS",
        "_UNCERTAIN",
        "_LEAST_L2",
        "_ENOUGH_ROWS",
    ),
    "protocols/summary/budget.py": ("FOR_MASS",),
    "protocols/summary/dimensions.py": ("MOST", "_PER_RHO"),
    "protocols/summary/home.py": ("NEAREST", "_POWERS"),
    "protocols/summary/moments.py": ("MEAN",),
    "protocols/summary/sizes.py": ("HEADROOM",),
    "protocols/summary/ratio.py": ("MOST", "_RIDGE"),
    "protocols/summary/spectrum.py": ("MOST", "EDGE"),
    "protocols/synthetic/counting.py": ("BINS", "MOST_COUNTS"),
    "protocols/synthetic/labels.py": ("_PRIOR", "_STEP", "_FITTED"),
    "protocols/synthetic/layout.py": ("GAUSSIAN", "LAPLACE"),
    "protocols/synthetic/mixture.py": ("COMPONENTS", "_FLOOR"),
    "protocols/synthetic/rule.py": ("MOST_NOISE",),
    "protocols/synthetic/second_round.py": ("PAIRS", "FIRST"),
    "protocols/vertical/gradients.py": ("SWITCH", "TENTHS_FOR_MOMENTS"),
    "protocols/vertical/instruments.py": ("CONSTANT_SHARE", "SCORES_BY_NOISE"),
    "protocols/vertical/response.py": ("PERIOD", "REACH"),
    "protocols/vertical/landscape.py": ("WHITENED_FROM",),
    "protocols/vertical/descent.py": ("_DOUBT", "_LEAST", "_VARIANCES"),
    "protocols/vertical/layout.py": ("LABEL_SHARE",),
    "protocols/vertical/dissection.py": ("DIAGONAL",),
    "protocols/vertical/fit.py": ("RIDGE",),
    "learn/fitting/quadratic.py": ("UNEQUAL",),
    "learn/voters/self_training.py": ("_PRIOR_COUNT", "_FLOOR"),
    "learn/released/feature_map.py": ("_FLOOR", "_ROWS_PER_DIMENSION"),
    "learn/voters/clusters.py": ("_STARTS",),
}


@pytest.mark.parametrize(("file", "name"), [(file, name) for file, names in TUNED.items() for name in names])
def test_a_tuned_constant_says_on_which_data_it_was_chosen(file: Any, name: Any) -> None:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    at = next(number for number, line in enumerate(lines) if re.match(rf"\s*{re.escape(name)}\b", line))
    # Losses say it in the docstring of their function, further above their clip.
    beside = "\n".join(lines[max(0, at - (26 if "clip" in name else 6)) : at + 4])
    assert SAID.search(beside), beside
