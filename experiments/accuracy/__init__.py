"""How accurate the defaults are on public tables."""
