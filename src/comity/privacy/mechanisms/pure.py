"""Noise with a pure ε: its loss, and shares of it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

from comity.errors import StudyError
from comity.privacy.loss import Loss, Pure


@dataclass(frozen=True)
class PureNoise:
    """What noise with a pure ε has in common: its loss, which is what a draw costs."""

    loss: Pure
    name: ClassVar[str]

    def __post_init__(self) -> None:
        check_pure(self.loss, f"{self.name} noise")

    @property
    def charged(self) -> Pure:
        return self.loss


def check_pure(loss: Loss, name: str) -> Pure:
    if not isinstance(loss, Pure) or loss.epsilon <= 0:
        raise StudyError(f"{name} needs a pure epsilon above 0, found {loss}", key="privacy.epsilon")
    return loss


def pure_share(loss: Loss, name: str, shares: int) -> float:
    """The ε of each of `shares` equal parts of a pure loss, rounded down; the parts compose by addition."""
    pure = check_pure(loss, name)
    if shares < 1:
        raise StudyError(f"{name}: a loss needs at least one share, found {shares}")
    return float(pure.epsilon / Decimal(shares)) * (1 - 2.0**-50)
