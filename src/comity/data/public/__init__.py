"""Public tables: datasets, bundled pictures of digits, generated visits."""
