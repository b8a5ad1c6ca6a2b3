"""Measurements by name, one file each: ours beside an anchor in the same run. A module is imported when it is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

__all__ = ["BENCHES", "Measurement"]


@dataclass(frozen=True)
class Measurement:
    name: str
    about: str
    run: Callable[..., list[dict[str, Any]]]
    # Whether `run` takes a folder `out` for a plot.
    plots: bool = False
    # Further options of the command that `run` takes.
    options: tuple[str, ...] = ()


def _measure(module: str) -> Callable[..., list[dict[str, Any]]]:
    def run(**options: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = import_module(f"comity.bench.{module}").measure(**options)
        return rows

    return run


BENCHES = {
    bench.name: bench
    for bench in (
        Measurement(
            "averaging",
            "averaged models on Adult, against federated averaging at the same loss",
            _measure("methods.averaging"),
        ),
        Measurement(
            "averaging-published",
            "the published protocol of averaged classifiers, against the same model in one place",
            _measure("methods.averaging_published"),
        ),
        Measurement(
            "consistency",
            "non-negative consistent counts of a tree, against OSQP and Clarabel",
            _measure("methods.consistency"),
        ),
        Measurement(
            "deploy", "rounds between processes over a relay, against the local channel", _measure("running.deploy")
        ),
        Measurement("ledger", "durable debits per second, against bare SQLite commits", _measure("running.ledger")),
        Measurement(
            "softlabel-parties",
            "local fits and votes of 20,000 parties, against a loop over scikit-learn",
            _measure("methods.softlabel_parties"),
        ),
        Measurement("paillier", "Paillier encryption, against phe", _measure("kernels.paillier")),
        Measurement("product", "secure products by dealer and by ring-LWE, against numpy", _measure("kernels.product")),
        Measurement("psi", "private set intersection, keyed and by elliptic curves", _measure("kernels.psi")),
        Measurement("seal", "sealing and opening 50 MB, against AES-GCM alone", _measure("kernels.seal")),
        Measurement("securesum", "masking and unmasking, against the plain sum", _measure("kernels.securesum")),
        Measurement(
            "argmin", "argmin of shared integers, and its triples by oblivious transfer", _measure("kernels.argmin")
        ),
        Measurement(
            "softlabel-million", "a study of 1,000,000 parties: time and memory", _measure("methods.softlabel_million")
        ),
        Measurement(
            "summary",
            "a thousand of a million records that match a consumer's, against greedy choice in one place",
            _measure("methods.summary"),
        ),
        Measurement(
            "stream",
            "averaging over records that stream from Parquet, against numpy on the same batches",
            _measure("running.stream"),
            options=("rows",),
        ),
        Measurement(
            "synthetic",
            "a synthetic dataset of many owners, against MST and AIM of one curator at the same loss",
            _measure("methods.synthetic"),
        ),
        Measurement(
            "synthetic-columns",
            "counts over columns of three owners, and a dataset of them, against numpy in one place",
            _measure("methods.synthetic_columns"),
            options=("rows",),
        ),
        Measurement(
            "vertical",
            "a regression over columns of several parties, against numpy in one place",
            _measure("methods.vertical"),
            plots=True,
        ),
    )
}
