"""The constants of Sarpatwar et al. (2019), with the place where the paper prints each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from comity.methods.constants import Constant

_NOT_PRINTED = "not printed; a parameter of Algorithm 3"

PAPER: Final[Mapping[str, Constant]] = {
    "gamma": Constant(0.1, "section 4", "of the kernel exp(-gamma |x - y|^2)"),
    "dimensions": Constant(140, "section 4", "d, the number of features of h1"),
    "features": Constant("printed", "Algorithm 1", "cosines of frequencies from N(0, 2 gamma I) with uniform phases"),
    "bid_sign": Constant("printed", "Algorithm 3, line 6", "a bid is the summary's part minus the target's"),
    "epsilon_v": Constant(0.01, "section 4", "epsilon of an iteration of h2 for the consumer's records"),
    "epsilon_first": Constant(0.05, "section 4", "epsilon of an iteration of h2 in the first round"),
    "epsilon_l": Constant(0.01, "section 4", "over sqrt(p t_sub): epsilon of an iteration of h2 in a later round"),
    "t_init": Constant("d^1.5", "section 4", "iterations of h2 in the first round, 1656 for d = 140"),
    "t_sub": Constant(5, "section 4", "iterations of h2 in each later round"),
    "eta": Constant("1/d", "Theorem 2, eta <= 1/d; section 4 has none", "spacing of the grid of h2"),
    "tau": Constant(5, _NOT_PRINTED, "rounds as its owner's choice after which a record is asked for"),
    "auction_epsilon": Constant(0.5, _NOT_PRINTED, "rank i is asked with probability exp(-auction_epsilon (i - 1))"),
    "quantisation": Constant(
        "nearest point", "Algorithm 2, line 3, names it; its steps are not printed", "how h2 rounds features"
    ),
    "start of a later round": Constant(
        "the weights of the round before", "section 4, 'matched incrementally'", "the first distribution of h2"
    ),
    "seed records": Constant("about 150, public", "section 4", "what the summary starts with; `auxiliary` here"),
    "claimed loss": Constant(
        "sqrt(2k ln(1/delta)) e + k e (exp(e) - 1)",
        "Theorem 7, as section 4 applies it: (1.4, 0.01) and (0.043, 0.0001)",
        "of k iterations of epsilon e",
    ),
}
