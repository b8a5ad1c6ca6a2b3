"""Two-sided computations on bits: oblivious transfer, triples, circuits, and the index of the smallest."""
