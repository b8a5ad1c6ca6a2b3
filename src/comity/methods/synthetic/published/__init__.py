"""Private datasets as published: trees, consistent counts, synthesis and labelling, each owner for itself."""
