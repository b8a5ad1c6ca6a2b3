"""Measurements by name: Comity beside an anchor in the same run."""

from __future__ import annotations

from experiments.experiment import Experiment

__all__ = ["BENCHES"]

BENCHES = {
    "argmin": Experiment(
        "argmin of shared integers, and its triples by oblivious transfer", "experiments.bench.kernels.argmin:measure"
    ),
    "averaging": Experiment(
        "averaged models on Adult, against federated averaging at the same loss",
        "experiments.bench.methods.averaging:measure",
    ),
    "averaging-pooled": Experiment(
        "averaging over a million records in memory, all parties' work, against scikit-learn's fit on all of them",
        "experiments.bench.methods.averaging_pooled:measure",
        options=("rows",),
    ),
    "averaging-published": Experiment(
        "the published protocol of averaged classifiers, against the same model in one place",
        "experiments.bench.methods.averaging_published:measure",
    ),
    "consistency": Experiment(
        "non-negative consistent counts of a tree, against OSQP and Clarabel",
        "experiments.bench.methods.consistency:measure",
    ),
    "deploy": Experiment(
        "rounds between processes over a relay, against the local channel", "experiments.bench.running.deploy:measure"
    ),
    "ledger": Experiment(
        "durable debits per second, against bare SQLite commits", "experiments.bench.running.ledger:measure"
    ),
    "paillier": Experiment("Paillier encryption, against phe", "experiments.bench.kernels.paillier:measure"),
    "product": Experiment(
        "secure products by dealer and by ring-LWE, against numpy", "experiments.bench.kernels.product:measure"
    ),
    "many-sites": Experiment(
        "one run over a thousand sites and a real relay: time and memory of all processes",
        "experiments.bench.running.many_sites:measure",
    ),
    "many-owners": Experiment(
        "a study of many whole owners: site files, inboxes, approvals and a run over a real relay",
        "experiments.bench.running.many_owners:measure",
    ),
    "psi": Experiment(
        "private set intersection, keyed and by elliptic curves", "experiments.bench.kernels.psi:measure"
    ),
    "seal": Experiment("sealing and opening 50 MB, against AES-GCM alone", "experiments.bench.kernels.seal:measure"),
    "securesum": Experiment(
        "masking and unmasking, against the plain sum", "experiments.bench.kernels.securesum:measure"
    ),
    "softlabel-hosts": Experiment(
        "a run with a real host for each of 300 and 600 parties, against stacks without hosts",
        "experiments.bench.methods.softlabel_hosts:measure",
    ),
    "softlabel-million": Experiment(
        "a study of 1,000,000 parties: time and memory", "experiments.bench.methods.softlabel_million:measure"
    ),
    "softlabel-parties": Experiment(
        "local fits and votes of 20,000 parties, against a loop over scikit-learn",
        "experiments.bench.methods.softlabel_parties:measure",
    ),
    "startup": Experiment(
        "processor time of a command before it does anything, against a process that imports numpy",
        "experiments.bench.running.startup:measure",
    ),
    "stream": Experiment(
        "averaging over records that stream from Parquet, on one core and two, against numpy on the same batches",
        "experiments.bench.running.stream:measure",
        options=("rows",),
    ),
    "summary": Experiment(
        "a thousand of a million records that match a consumer's, against greedy choice in one place",
        "experiments.bench.methods.summary:measure",
    ),
    "synthetic": Experiment(
        "a synthetic dataset of many owners, against MST and AIM of one curator at the same loss",
        "experiments.bench.methods.synthetic:measure",
    ),
    "synthetic-columns": Experiment(
        "counts over columns of three owners, and a dataset of them, against numpy in one place",
        "experiments.bench.methods.synthetic_columns:measure",
        options=("rows",),
    ),
    "vertical": Experiment(
        "a regression over columns of several parties, against numpy in one place",
        "experiments.bench.methods.vertical:measure",
        options=("out",),
    ),
    "vertical-blocks": Experiment(
        "the default classifier over two parties' files beyond memory: time and memory, against scikit-learn's fit",
        "experiments.bench.methods.vertical_blocks:measure",
        options=("rows",),
    ),
    "vertical-default": Experiment(
        "the default classifier over columns of two parties, all parties' work, against scikit-learn's fit",
        "experiments.bench.methods.vertical_default:measure",
        options=("rows",),
    ),
    "warehouse": Experiment(
        "few columns of a wide table in a database, against a query for them, and further passes over a cache",
        "experiments.bench.running.warehouse:measure",
        options=("rows",),
    ),
}
