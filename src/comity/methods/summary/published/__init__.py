"""The method as published: weights instead of sums, greedy rounds, and an auction that is not private as claimed."""
