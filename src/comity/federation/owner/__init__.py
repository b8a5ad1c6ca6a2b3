"""The owner's side of a run: the host that answers asks, the site that a step sees, and the file they commit to."""
