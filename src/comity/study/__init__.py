"""A study file as agreed on: its tables, the public files that it names, its hash."""
