"""What a study delivers: models, datasets and tables. Each saves, loads, describes and draws itself."""
