"""What somebody else wrote, before anything is made of it: file names, texts for a terminal, TOML.

Studies, results, certificates and messages come from other parties. Each kind of text that they bring has one place
here that decides what is accepted and what it looks like when it is shown.
"""
