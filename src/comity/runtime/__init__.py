"""Where a study runs: on this machine (local), or between organisations."""
