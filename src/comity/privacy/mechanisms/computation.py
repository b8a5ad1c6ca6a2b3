"""What a site computes privately in one step: a choice, a noisy table, a bit, a whole algorithm with its own draws."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from comity.errors import DataError, StudyError
from comity.privacy.loss import Loss, Pure
from comity.privacy.permit import Permit

if TYPE_CHECKING:
    from comity.privacy.randomness import NoiseSource


class Computation(Protocol):
    """Turns private values into something that may leave, under one permit and for one debit.

    `charged` is the loss of all of it, whatever the values are and whatever was drawn on the way. It holds when one
    unit moves the values by at most `sensitivity`, measured as the class says, and the caller sees to that.
    """

    @property
    def name(self) -> str: ...

    @property
    def loss(self) -> Loss:
        """The budget it was made for."""
        ...

    @property
    def charged(self) -> Loss:
        """What one run costs."""
        ...

    @property
    def sensitivity(self) -> float:
        """How far one unit may move the values."""
        ...

    def check(self, values: NDArray[Any]) -> None:
        """Refuses values that it can't run on, before anything is debited or drawn."""
        ...

    def run(self, source: NoiseSource, values: NDArray[Any], *, permit: Permit) -> NDArray[Any]:
        """What may leave. Checks first, then takes the permit, then draws."""
        ...


def pure_share(loss: Loss, name: str, shares: int) -> float:
    """The ε of each of `shares` equal parts of a pure loss, a little too small; they compose by addition."""
    if not isinstance(loss, Pure) or loss.epsilon <= 0:
        raise StudyError(f"{name} needs a pure epsilon above 0, found {loss}", key="privacy.epsilon")
    if shares < 1:
        raise StudyError(f"{name}: a loss is shared by at least one, found {shares}")
    return float(loss.epsilon / Decimal(shares)) * (1 - 2.0**-50)


def checked_values(values: NDArray[Any], name: str, axes: int, limit: float) -> NDArray[Any]:
    """An array of finite numbers with at least so many axes, none of them empty."""
    found = np.asarray(values)
    if found.ndim < axes or found.size == 0 or not np.issubdtype(found.dtype, np.number) or np.iscomplexobj(found):
        raise DataError(
            f"{name} needs an array of numbers with at least {axes} axes, none of them empty; "
            f"found {found.dtype} of shape {found.shape}"
        )
    if not np.isfinite(found).all() or np.abs(found.astype(np.float64)).max() > limit:
        raise DataError(f"{name} needs finite values of at most {limit:.3g} in size: bound them first")
    return found
