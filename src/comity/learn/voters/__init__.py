"""A party's own classifier, its votes, and what is learned from many of them."""
