"""Products of matrices that different parties hold, left additively shared: by a dealer, or by ring-LWE encryption."""
