"""Private datasets as published: trees, consistent counts, synthesis and labelling, each owner separately.

The whole method runs by `variant = "published"`. Figures that show one part of it import that part from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comity.lazy_exports import export_lazily

if TYPE_CHECKING:
    from comity.methods.synthetic.published.method import Budget as Budget
    from comity.methods.synthetic.published.predictor import Learner as Learner
    from comity.methods.synthetic.published.predictor import choose_learner as choose_learner
    from comity.methods.synthetic.published.predictor import constant_error as constant_error
    from comity.methods.synthetic.published.predictor import measure_error as measure_error
    from comity.methods.synthetic.published.predictor import scale_target as scale_target
    from comity.methods.synthetic.published.predictor import train_model as train_model
    from comity.methods.synthetic.published.synthesis import clip_leaf_masses as clip_leaf_masses
    from comity.methods.synthetic.published.synthesis import draw_records as draw_records
    from comity.methods.synthetic.published.synthesis import fit_masses as fit_masses
    from comity.methods.synthetic.published.synthesis import objective as objective
    from comity.methods.synthetic.published.synthesis import round_masses as round_masses
    from comity.methods.synthetic.published.synthesis import solve_leaf_masses as solve_leaf_masses
    from comity.methods.synthetic.published.synthesis import vote as vote
    from comity.methods.synthetic.published.tree import Attributes as Attributes
    from comity.methods.synthetic.published.tree import Tree as Tree
    from comity.methods.synthetic.published.tree import count_levels as count_levels
    from comity.methods.synthetic.published.tree import draw_shape as draw_shape
    from comity.methods.synthetic.published.tree import draw_targets as draw_targets
    from comity.methods.synthetic.published.tree import grow_tree as grow_tree

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

_HOMES = {
    "Attributes": "comity.methods.synthetic.published.tree",
    "Budget": "comity.methods.synthetic.published.method",
    "Learner": "comity.methods.synthetic.published.predictor",
    "Tree": "comity.methods.synthetic.published.tree",
    "choose_learner": "comity.methods.synthetic.published.predictor",
    "clip_leaf_masses": "comity.methods.synthetic.published.synthesis",
    "constant_error": "comity.methods.synthetic.published.predictor",
    "count_levels": "comity.methods.synthetic.published.tree",
    "draw_records": "comity.methods.synthetic.published.synthesis",
    "draw_shape": "comity.methods.synthetic.published.tree",
    "draw_targets": "comity.methods.synthetic.published.tree",
    "grow_tree": "comity.methods.synthetic.published.tree",
    "fit_masses": "comity.methods.synthetic.published.synthesis",
    "measure_error": "comity.methods.synthetic.published.predictor",
    "objective": "comity.methods.synthetic.published.synthesis",
    "round_masses": "comity.methods.synthetic.published.synthesis",
    "scale_target": "comity.methods.synthetic.published.predictor",
    "solve_leaf_masses": "comity.methods.synthetic.published.synthesis",
    "train_model": "comity.methods.synthetic.published.predictor",
    "vote": "comity.methods.synthetic.published.synthesis",
}
__getattr__, __dir__ = export_lazily(globals(), _HOMES)
