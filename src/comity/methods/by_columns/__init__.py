"""What methods share whose parties hold different columns of the same records."""
