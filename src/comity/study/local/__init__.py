"""The embedded runtime: all parties on this machine."""
