"""The dossier of a study or a run: documents for the people who decide about it, from plan, ledger and report."""
