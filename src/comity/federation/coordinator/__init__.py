"""The coordinator's side of a run: asking, the journal, what is released, and to whom it is delivered."""
