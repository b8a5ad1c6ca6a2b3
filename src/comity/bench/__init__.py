"""Measurements by name, ours beside an anchor in the same run: those of every method's entry, and those of the kernels
and of running."""

from __future__ import annotations

from comity.protocols import entries
from comity.protocols.entry import Measurement

__all__ = ["BENCHES", "Measurement"]

_OF_ALL = {
    "deploy": Measurement(
        "rounds between processes over a relay, against the local channel", "comity.bench.running.deploy:measure"
    ),
    "ledger": Measurement(
        "durable debits per second, against bare SQLite commits", "comity.bench.running.ledger:measure"
    ),
    "paillier": Measurement("Paillier encryption, against phe", "comity.bench.kernels.paillier:measure"),
    "product": Measurement(
        "secure products by dealer and by ring-LWE, against numpy", "comity.bench.kernels.product:measure"
    ),
    "psi": Measurement("private set intersection, keyed and by elliptic curves", "comity.bench.kernels.psi:measure"),
    "seal": Measurement("sealing and opening 50 MB, against AES-GCM alone", "comity.bench.kernels.seal:measure"),
    "securesum": Measurement("masking and unmasking, against the plain sum", "comity.bench.kernels.securesum:measure"),
    "argmin": Measurement(
        "argmin of shared integers, and its triples by oblivious transfer", "comity.bench.kernels.argmin:measure"
    ),
    "stream": Measurement(
        "averaging over records that stream from Parquet, against numpy on the same batches",
        "comity.bench.running.stream:measure",
        options=("rows",),
    ),
}

BENCHES = {**_OF_ALL, **{name: bench for entry in entries().values() for name, bench in entry.benches.items()}}
