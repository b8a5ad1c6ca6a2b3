"""Constants that were chosen on data, chosen again: on training rows alone, leaving out one dataset at a time."""
