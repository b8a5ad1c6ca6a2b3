"""Constants that were chosen on data, chosen again: on training rows alone, leaving out one dataset at a time."""

METHODS = {
    "adaptation": "experiments.choose.adaptation:choices",
    "averaging": "experiments.choose.averaging:choices",
    "softlabel": "experiments.choose.softlabel:choices",
    "synthetic": "experiments.choose.synthetic:choices",
    "vertical": "experiments.choose.vertical:choices",
}
"""Where the constants of each method are: a function that yields a `Choice` for each."""
