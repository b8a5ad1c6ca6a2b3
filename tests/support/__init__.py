"""What tests of several packages use: each module one thing."""
