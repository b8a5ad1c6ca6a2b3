"""What may cross a trust boundary, agreed on before anything runs: declarations, bounds, who takes part, who pays."""
