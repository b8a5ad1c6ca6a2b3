"""What a run gives back: to the coordinator, to each party, and as files."""
