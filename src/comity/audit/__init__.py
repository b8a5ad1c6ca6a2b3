"""Empirical lower bounds of ε, to compare with the claimed ε."""

from __future__ import annotations

from comity.audit.bound import epsilon_lower_bound, gdp_lower_bound, mu_lower_bound

__all__ = ["epsilon_lower_bound", "gdp_lower_bound", "mu_lower_bound"]
