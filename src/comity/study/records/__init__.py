"""Records as a method wants them: each owner's own, or those of a simulation dealt to its parties."""
