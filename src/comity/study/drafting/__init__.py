"""A first study from owners' own files: how each is read, how they are matched, and the study and schema to correct."""
