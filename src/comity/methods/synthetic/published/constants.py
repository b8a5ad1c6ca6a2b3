"""What Fioretto and Van Hentenryck (2019) fix, where they print it, and what stands in for what they do not print."""

from __future__ import annotations

from typing import Final

from comity.methods.constants import Constant
from comity.methods.synthetic.published.tree import BUCKETS

PAPER: Final = {
    # Options of the method.
    "depth": Constant(8, "section 4, Mechanisms", "h_max, the levels of a tree, leaves included"),
    "candidates": Constant(10, "section 4, Mechanisms", "t, the thresholds that a split chooses from"),
    "levels": Constant(4, "section 4, Mechanisms", "p, the levels whose sizes are made consistent, leaves included"),
    "choice": Constant("exponential", "Algorithm 3, line 22", "weights exp(eps' u/2) of the thresholds"),
    "consistency": Constant(True, "Algorithm 5, lines 3 and 4", "least squares over the levels; PFDS- leaves it out"),
    "labelling": Constant("vote", "Algorithm 4, lines 5 and 6", "majority of all trees; PFDS(s) asks the own tree"),
    "losses": Constant("printed", "equations 2 to 4", "squares, logistic loss, hinge loss"),
    "l2": Constant(1e-4, "equation 1 has lambda |w|^2; no value is printed", "lambda of the owners' models"),
    "leaves": Constant(
        20_000,
        "not printed; a tree of Census with 8 levels may have ten million leaves",
        "the most nodes of a level, by a rule that reads no record",
    ),
    # Facts that the run uses.
    "tree budget": Constant("eps/(2 h_max) for each level", "Algorithm 2, line 2", "choices of a level, and leaves"),
    "counts budget": Constant(
        "eps/(2 (p-1)) for each level", "Algorithms 4 and 5, line 2", "counts of levels 1 to p-1"
    ),
    "leaf noise": Constant("Lap(2 h_max/eps)", "Algorithm 3, line 13", "on each class count; drawn on whole numbers"),
    "score": Constant("largest class left + right", "section 3.1, Max operator", "u of a threshold; sensitivity 1"),
    "weights": Constant("1/m_i", "Algorithm 5, O1", "of level i with m_i nodes in the least squares"),
    "buckets": Constant(BUCKETS, "section 3.1", "b, the classes that a numeric target is divided into"),
    "rounding": Constant(
        "systematic", "not printed; Algorithm 5, line 8, takes x* individuals of each leaf", "of fractional leaf sizes"
    ),
    "neighbours": Constant(
        "add-remove", "section 2.3: one individual more or less, or other; not said which", "what the loss is about"
    ),
    # The experiments.
    "agents": Constant(100, "Table 1", "Diabetes: 10"),
    "epsilons": Constant((1.0, 0.5, 0.1), "Table 2", "claimed loss"),
    "repetitions": Constant((10, 10), "section 4", "folds, and runs of each"),
}
