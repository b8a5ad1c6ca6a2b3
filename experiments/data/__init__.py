"""Public tables that several experiments share, with their schemas."""
