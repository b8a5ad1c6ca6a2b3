"""What the paper compares its method with, and how: DP-Pred, DiffGen, NP-Agt, NP-Pred, PFDS(s) and PFDS−.

from comity.methods.synthetic.published.baselines import encode_records, published_errors
"""

from __future__ import annotations

from comity.methods.synthetic.published.baselines.agents import (
    CANDIDATES,
    DEPTH,
    LEAVES,
    LEVELS,
    PRIVATE_L2,
    AgentRelease,
    PublishedErrors,
    agent_release,
    deal_records,
    diffgen_release,
    encode_records,
    errors_by_learner,
    fit_and_measure,
    private_error,
    published_errors,
    train_private_predictors,
)
from comity.methods.synthetic.published.baselines.diffgen.budget import DiffGenBudget
from comity.methods.synthetic.published.baselines.diffgen.specialising import draw_generalised, generalise
from comity.methods.synthetic.published.baselines.diffgen.taxonomy import Taxonomy, taxonomy_of
from comity.methods.synthetic.published.baselines.private_predictors import (
    CURVATURE,
    by_committee,
    by_majority,
    functional_mechanism,
    objective_perturbation,
    printed_loss,
)

__all__ = [
    "CANDIDATES",
    "CURVATURE",
    "DEPTH",
    "LEAVES",
    "LEVELS",
    "PRIVATE_L2",
    "AgentRelease",
    "DiffGenBudget",
    "PublishedErrors",
    "Taxonomy",
    "agent_release",
    "by_committee",
    "by_majority",
    "deal_records",
    "diffgen_release",
    "draw_generalised",
    "encode_records",
    "errors_by_learner",
    "fit_and_measure",
    "functional_mechanism",
    "generalise",
    "objective_perturbation",
    "printed_loss",
    "private_error",
    "published_errors",
    "taxonomy_of",
    "train_private_predictors",
]
