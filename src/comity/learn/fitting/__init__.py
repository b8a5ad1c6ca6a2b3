"""Solvers of penalised fits, for one party or a stack of them."""
