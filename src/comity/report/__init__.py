"""A run as people read it: one page, a model card, and files that can be read again."""
