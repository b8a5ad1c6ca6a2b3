"""Is the model any good? Measured under privacy, on records that were set aside before training."""
