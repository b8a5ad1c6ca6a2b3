"""Hamm, Cao and Belkin (2016), done again."""
