"""What methods share between parties: secure sums, products, the index of the smallest, alignment."""
