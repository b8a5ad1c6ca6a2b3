"""Mutants: the rules of docs/guarantees.md, each removed or weakened in one line, and the tests that must notice.

A test that passes with its rule removed tests something else. `catalogue.toml` has one line for each mutant: the rule,
the source text that enforces it, what takes its place, and the tests beside the rule that must fail. `make mutants`
tries all of them, each in a copy of the tree; the checkout is never edited.
"""
