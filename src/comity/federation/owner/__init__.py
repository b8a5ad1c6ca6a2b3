"""An owner's side of a run: the host that answers, the site that a step sees, the file that both commit to."""
