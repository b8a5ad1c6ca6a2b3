"""What each key of a study file and of a site file means, by the class that validates its table.

Editors show these (`comity schema json`), and the tables of the documents are made of them (`tools.reference`). Options
of methods have their meaning in the classes of the methods.
"""

from __future__ import annotations

from typing import Any

MEANINGS: dict[str, dict[str, str]] = {
    "StudyTable": {
        "name": "what people call the study",
        "protocol": "the method: averaging, softlabel, summary, synthetic or vertical",
        "schema": "the file of the schema, in the study's folder",
        "purpose": "what the study is for, in one line",
        "contact": "whom to ask, in one line",
        "legal_basis": "on which legal basis records are read, in one line",
        "retention": "how long results are kept, in one line",
    },
    "PrivacyTable": {
        "unit": "who is protected; record for synthetic and summary if left out",
        "neighbours": "a unit is replaced, or added or removed; add-remove for synthetic of whole records if left out",
        "epsilon": "the most that each party loses",
        "delta": "the chance that the bound of epsilon fails; 0 is pure",
        "colluders": "how many parties may pool what they saw with the coordinator",
        "dropouts": "how many parties may vanish; no sum of fewer than the rest is opened",
    },
    "PartyTable": {
        "columns": "the columns that this party holds, where parties hold different ones; lab_* is a pattern",
        "role": "where the method has roles: owner or consumer (summary), sharer (synthetic as published)",
        "keys": "public keys, as comity keys show prints them; a deployment needs them",
    },
    "CoordinatorTable": {
        "keys": "public keys; a simulation makes its own",
    },
    "EvaluationTable": {
        "share": "of each owner's records, up to 0.5; 0.2 if left out",
        "budget": "where a whole party is protected: the part of epsilon that measuring costs; 0.1 if left out",
    },
    "PredictionTable": {
        "of": "the hash of the study that released the model",
        "run": "the run that released it",
        "weights": "the file of its weights; an owner accepts only those it received",
        "records": "the largest number of new records to score",
        "receiver": "a party that gets the scores, beside the coordinator",
    },
    "SimulationTable": {
        "data": "one source, which is split, or a table with one source for each party",
        "split": "how one source is divided among the parties",
        "sizes": "by-sizes: records of each party, or shares that add up to 1",
        "column": "by-column: names a record's party; by-anchors: what the parties differ in",
        "test": "a source of test records",
        "holdout": "without test: the share of records held out for the test",
        "split_seed": "another number holds out and deals other records; --seed does not",
        "baselines": "compare with a constant, own data and pooled data",
        "evaluate_by": 'columns, and "party": the error of each subgroup of the test records, with intervals',
        "grant": "epsilon in each simulated ledger; what the study asks if left out",
        "memory": "gigabytes of a party's encoded records; more are read in blocks, or refused",
        "models": "soft labels: the local model of each party, or default, instead of the built-in one",
        "hosts": "false: without masks, messages and a ledger each, in less time; the result says so",
    },
    "SiteTables": {
        "party": "your name in studies",
        "ledger": "the file of the ledger",
        "keys": "the file of the secret keys",
        "policy": "your terms",
        "data": "a source for each dataset, by its name in the ledger",
        "pinned": "public keys of parties and submitters that you know",
        "relay": "the relay to connect to; without it the site does not serve",
        "memory": "gigabytes of encoded records; more are read in blocks",
        "cache": "gigabytes of encoded records on disk while they are read in blocks; 0 reads the source for each sum",
    },
    "PolicyTable": {
        "protocols": "methods that may run",
        "variants": "their variants",
        "epsilon_per_study": "ceiling for all runs of one study, in the unit of the ledger",
        "delta_per_study": "the delta at which that is counted; 0 refuses Gaussian noise",
        "epsilon_per_period": "ceiling for all studies of a dataset within period_days",
        "delta_per_period": "the delta at which that is counted; delta_per_study if left out",
        "period_days": "the days before a run begins, by this machine's clock",
        "submitters": "who may submit studies; their keys are in [pinned]",
        "sizes_may_leave": "exact numbers of rows and of matches may leave",
        "records_may_leave": "records, or hashes of them, may leave",
        "joint_predictions": "new records that a run may score jointly and exactly",
        "unproven": "methods that are not private as claimed may run, at their true loss",
        "approval": "within-policy approves one run of each study that these terms allow",
    },
    "RelayTable": {
        "address": "the relay's address, as comity consortium join prints it",
        "certificate": "the site's certificate, with its key and the authority beside it; relay/certificate.pem",
    },
}


def describe_keys(name: str, schema: dict[str, Any]) -> None:
    """Add the meanings to the JSON schema of a table; keys that describe themselves stay as they are."""
    for key, meaning in MEANINGS.get(name, {}).items():
        if key in schema.get("properties", {}):
            schema["properties"][key].setdefault("description", meaning)
