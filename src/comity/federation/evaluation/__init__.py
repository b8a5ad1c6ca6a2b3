"""How good a model is: evaluated under privacy on held-out records, assessed in a simulation, scored by an owner."""
