"""Which identifiers two parties have in common."""
