"""What a study leaves to whoever receives it: models, datasets, tables, each saved, loaded, described and drawn by
itself."""
