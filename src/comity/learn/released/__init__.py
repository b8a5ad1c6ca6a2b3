"""Models made of published numbers alone, and their files."""
