"""The public description of a record, and how a table is held against it."""
