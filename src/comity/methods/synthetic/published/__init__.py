"""Private datasets as published: trees, consistent counts, synthesis and labelling, each owner separately.

The whole method runs by `variant = "published"`. Figures that show one part of it import that part from here.
"""

from __future__ import annotations

from comity.methods.synthetic.published.method import Budget
from comity.methods.synthetic.published.predictor import (
    Learner,
    choose_learner,
    constant_error,
    measure_error,
    scale_target,
    train_model,
)
from comity.methods.synthetic.published.synthesis import (
    clip_leaf_masses,
    draw_records,
    fit_masses,
    objective,
    round_masses,
    solve_leaf_masses,
    vote,
)
from comity.methods.synthetic.published.tree import Attributes, Tree, count_levels, draw_shape, draw_targets, grow_tree

__all__ = [
    "Attributes",
    "Budget",
    "Learner",
    "Tree",
    "choose_learner",
    "clip_leaf_masses",
    "constant_error",
    "count_levels",
    "draw_records",
    "draw_shape",
    "draw_targets",
    "fit_masses",
    "grow_tree",
    "measure_error",
    "objective",
    "round_masses",
    "scale_target",
    "solve_leaf_masses",
    "train_model",
    "vote",
]
