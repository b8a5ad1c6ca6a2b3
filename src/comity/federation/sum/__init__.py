"""The secure sum: the coordinator learns the sum of the parties' vectors, and no vector."""
