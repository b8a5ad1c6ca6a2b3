"""What Hamm, Cao and Belkin (2016) fix, by name, with the place where it is printed.

Names of options are the defaults of these options under `variant="published"`. The others are facts of the method that
no option changes.
"""

from __future__ import annotations

from typing import Final

from comity.methods.constants import Constant

PAPER: Final = {
    "method": Constant("soft", "section 4.3, Algorithm 2", 'shares of votes are the labels; Algorithm 1 is "vote"'),
    "l2": Constant(1e-4, "section 6", "λ of the local classifiers and of the global one"),
    "sensitivity": Constant("paper", "Theorems 1 and 3", "2/λ of vote and 2/(Mλ) of soft; repaired by tight"),
    "auxiliary_privacy": Constant("public", "section 3.3", "auxiliary records are public; section 4.5 is private"),
    "intercept": Constant(False, "section 2.2", "the loss is l(v wᵀx), without a constant feature"),
    "scaling": Constant(
        "scaled", "not printed: section 2.2 asks for |x| <= 1", "one public bound divides every record"
    ),
    "loss": Constant("logistic", "section 6", "of two classes; softmax for more"),
    "delta": Constant(0, "equation 1", "epsilon is pure unless a study sets privacy.delta"),
    "noise of vote": Constant("exp(-0.5 λ ε |η|)", "Algorithm 1", "density; its radius is Gamma(d, 2/(λε))"),
    "noise of soft": Constant("exp(-0.5 M λ ε |η|)", "Algorithm 2", "density; its radius is Gamma(d, 2/(Mλε))"),
    "ties": Constant("second class", "equation 6", "a tie is a vote for y = 1; of several classes the last one tied"),
}
