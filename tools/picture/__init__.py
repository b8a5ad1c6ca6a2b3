"""The house as it is: rooms, their sizes, what each imports, and the way of a run through them, drawn from the code."""
