"""Scores to compare a released model with. They are computed from private records, so they exist in simulation only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Baseline:
    """An error on test records: of a constant, of parties alone, of everything pooled, of the method without noise.

    `log_loss` and `auc` stand beside it where what is compared with gives probabilities of classes; of parties alone
    they are means.
    """

    name: str
    error: float
    spread: float = 0.0
    note: str = ""
    log_loss: float | None = None
    auc: float | None = None
