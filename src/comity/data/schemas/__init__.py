"""The public description of a record, and the reading and checking of tables by it."""
