"""Where records are: files, databases, tables in memory, whole or in blocks."""
