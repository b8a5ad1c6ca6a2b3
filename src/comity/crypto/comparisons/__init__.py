"""Two-sided computations on bits: oblivious transfer, gates, comparisons, the place of the least."""
