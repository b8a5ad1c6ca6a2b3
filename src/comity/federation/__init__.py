"""What passes between participants: declarations, steps, stores, the coordinator's side, the secure sum."""
