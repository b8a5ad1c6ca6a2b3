"""Sources of records: files, databases and tables in memory, read whole or in blocks."""
