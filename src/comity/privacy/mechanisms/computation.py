"""Checks that all private computations of a site share: the loss they are made for and the values they run on."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comity.errors import DataError, StudyError
from comity.privacy.loss import Loss, Pure


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
