"""Measurements of what carries a run: relay, ledger, streams."""
