"""A whole consortium on one machine, with the hosts, ledgers and messages of a deployment."""
