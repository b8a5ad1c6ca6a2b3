"""A run for readers: one page, a model card, and files that `comity.load_result` reads."""
