"""Pictures of the architecture, drawn from the code: packages by layer with their imports, and the path of a run."""
