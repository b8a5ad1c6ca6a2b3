"""Fioretto and Van Hentenryck (2019), done again."""
