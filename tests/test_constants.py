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
    "methods/averaging/descent.py": (
        "ROUNDS",
        "SECOND_MOMENT_SHARE",
        "CALIBRATION_SHARE",
        "MIN_PROGRESS",
        "MAX_NOISE",
        "_LOUD",
        "_MIN_CLIP",
        "_NARROW",
        "_LITTLE_NOISE",
        "_RIDGE",
    ),
    "methods/averaging/calibration.py": ("CALIBRATIONS", "PRIOR_DEVIATION", "_MAX_LOG"),
    "methods/averaging/second_moments.py": ("MAX_WHOLE_FEATURES", "SQUARES_WEIGHT", "WHITENINGS", "MAX_SHARE"),
    "methods/averaging/regression.py": ("TARGET_WEIGHT", "_FINE"),
    "methods/averaging/objectives.py": ("clip=0.5", "_STEP_CURVATURE", "_PENALTY"),
    "methods/averaging/method.py": ("HEADROOM",),
    "methods/declared_records.py": ("FAR",),
    "methods/softlabel/choice.py": (
        "_VOTE_NOISE",
        "_SUM_NOISE",
        "_MOSTLY_NOISE",
        "_DIRECTIONS_PER_CLASS",
        "_CELL_NOISE",
        "_CELL_RECORDS",
        "_COUNTED",
        "_NOISY_CELLS",
    ),
    "methods/softlabel/votes.py": ("_LEAST_L2", "_L2_PER_DEVIATION", "_ENOUGH_ROWS", "_REPEATS"),
    "methods/softlabel/record_sums.py": (
        "_DECIDED",
        "_CLUSTER_DIRECTIONS",
        "_AGREEMENT",
        "_DIFFER",
        "EXPLAINED",
        "_NOISY",
        "_ROUNDS",
        "_MATCHED_CLASSES",
        "_PART_POWER",
        "_LEAST_L2",
        "_ENOUGH_ROWS",
    ),
    "methods/summary/method.py": ("MASS_SHARE", "MAX_FEATURES", "_PER_RHO"),
    "methods/summary/herding.py": ("NEIGHBOURS", "_POWERS", "EXCHANGE_PASSES", "CLASS_WEIGHT"),
    "methods/summary/features.py": ("MEAN_WEIGHT",),
    "methods/summary/protocol.py": ("HEADROOM",),
    "methods/summary/ratio.py": ("MAX_RATIO", "_RIDGE", "MAX_RANK", "NOISE_EDGE"),
    "methods/synthetic/counts.py": (
        "BINS",
        "MAX_COUNTS",
        "GAUSSIAN",
        "LAPLACE",
        "MAX_PAIR_NOISE",
        "RECOUNTED_PAIRS",
        "FIRST_SHARE",
    ),
    "methods/synthetic/labels.py": ("_PRIOR", "_STEP", "_FITTED"),
    "methods/synthetic/synthesis.py": ("COMPONENTS", "_MIN_DEVIATION"),
    "methods/vertical/method.py": ("SWITCH", "ROUNDS_UP_TO", "COUNTED_FROM", "WARNED_FROM", "TENTHS_FOR_MOMENTS"),
    "methods/vertical/rounds.py": ("CONSTANT_SHARE", "SCORES_BY_NOISE"),
    "methods/vertical/descent.py": ("WHITENED_FROM", "_DOUBT", "_LEAST", "_VARIANCES", "DEVIATIONS", "MULTIPLES"),
    "methods/vertical/design.py": ("LABEL_SHARE",),
    "methods/vertical/moments.py": ("DIAGONAL",),
    "methods/vertical/posterior.py": ("RIDGE", "SAMPLING", "RIDGE_SHARE", "FEW_COLUMNS", "CLEAR", "_LEAST_EXPLAINED"),
    "learn/quadratic.py": ("UNEQUAL",),
    "methods/softlabel/self_training.py": ("_PRIOR_COUNT", "_FLOOR", "_STARTS"),
    "learn/feature_map.py": ("_FLOOR", "_ROWS_PER_DIMENSION"),
}


@pytest.mark.parametrize(("file", "name"), [(file, name) for file, names in TUNED.items() for name in names])
def test_a_tuned_constant_says_on_which_data_it_was_chosen(file: Any, name: Any) -> None:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    at = next(number for number, line in enumerate(lines) if re.match(rf"\s*{re.escape(name)}\b", line))
    # Losses say it in the docstring of their function, further above their clip.
    beside = "\n".join(lines[max(0, at - (26 if "clip" in name else 6)) : at + 4])
    assert SAID.search(beside), beside
