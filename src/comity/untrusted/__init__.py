"""Input that other parties wrote: file names, texts for a terminal, JSON and TOML.

Studies, results, certificates and messages come from other parties. For each kind of text one module here decides what
is accepted, and how it is shown.
"""
