"""What the parties agree on before a run: releases and their bounds, the consortium, who pays, an owner's policy."""
