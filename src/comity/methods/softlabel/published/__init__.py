"""Soft-label transfer as Hamm, Cao and Belkin published it."""
